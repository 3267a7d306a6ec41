"""A model whose score is a weighted sum of the scores of other models of one graph.

Rows of the members stand side by side: those of an entity, those of a relation followed by its weights. So an ensemble
is ranked, queried and searched by the same code as any model, chunk by chunk, and each member is scored by its own
kernels (`mixture.py`). Members may have tables of half precision, project entities, read neighbours, or have reciprocal
relations.

For one query, Σ_m w_m log softmax(s_m / T_m) orders candidates as Σ_m (w_m / T_m) s_m does, because a normaliser is the
same for all candidates. An ensemble therefore has one number a_m = w_m / T_m for each member and relation.

M members, R relations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.graph import Side
from pairre.graph.index import COLUMN
from pairre.models.contract import Query
from pairre.models.entity_rules import EntityRules
from pairre.models.mixture import Mixture, Part
from pairre.models.rule_model import RuleModel
from pairre.models.rule_scores import RuleScores
from pairre.models.scoring import Chunks, Model, RowSource, require_all_rows
from pairre.support.errors import PairREError

_AHEAD = 1 << 12  # queries that rules are applied to at a time


class _JoinedRows(RowSource):
    """The rows of several tables of one graph, side by side."""

    def __init__(self, sources: Sequence[RowSource]) -> None:
        for source in sources:
            require_all_rows(source, "an ensemble")
        self._sources = sources
        self.num_rows, self.width = sources[0].num_rows, sum(source.width for source in sources)

    def gather(self, ids: Tensor) -> Tensor:
        """Return the rows of some ids."""
        return torch.cat([source.gather(ids) for source in self._sources], -1)

    def chunks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the rows that are held here in chunks, each with the id of its first."""
        for parts in zip(*(source.chunks(size) for source in self._sources), strict=True):
            yield parts[0][0], torch.cat([rows for _, rows in parts], -1)

    def write(self, ids: Tensor, rows: Tensor) -> None:  # noqa: ARG002
        """Refuse: the members of an ensemble stay as they were trained."""
        raise PairREError("ensemble: its members do not change; extend or train them, and make an ensemble again")


class Ensemble(Model):
    """score(h, r, t) = Σ_m a_m(r) score_m(h, r, t)."""

    formula = "Σ_m a_m(r) score_m(h, r, t)"
    paper = ""
    relation_parts = {}
    sides_differ = True

    def __init__(self, members: Sequence[Model], weights: Tensor) -> None:
        """Take models on one device, those of rules last, and weights [R, M]."""
        torch.nn.Module.__init__(self)
        first = members[0]
        self.num_entities, self.num_relations = first.num_entities, first.num_relations
        expected = (self.num_relations, len(members))
        if weights.shape != expected:
            raise PairREError(f"ensemble: weights of shape {expected} expected, not {tuple(weights.shape)}")
        check_weights(weights)
        ruled = [isinstance(member, RuleModel) for member in members]
        kinds = [type(member) for member in members if isinstance(member, RuleModel)]
        if ruled != sorted(ruled) or len(set(kinds)) < len(kinds):
            raise PairREError("ensemble: rules are the last members, and there is one of each kind")
        self.members = torch.nn.ModuleList(members)
        self.mixing = torch.nn.Parameter(weights.to(first.device, torch.float32), requires_grad=False)
        self.metric = Mixture([_part(member) for member in members])
        self.projects_entities = any(member.projects_entities for member in members)
        self.dim = sum(member.dim for member in members)
        self.reciprocal = False
        self.candidate_side = {"tail": "tail", "head": "head"}
        self.relation_offset = {"tail": 0, "head": 0}
        self._split: dict[str, list[int]] = {
            "entity": [member.entities.width for member in members],
            "relation": [member.relations.width for member in members] + [len(members)],
        }
        self.stored = {}
        self._note_storage()
        self.step, self.attached_with = None, None
        self.eval()

    def _note_storage(self) -> None:
        self.device, self.dtype, members = self.mixing.device, self.mixing.dtype, list(self._members())
        self.set_rows(_JoinedRows([m.entities for m in members]), _JoinedRows([m.relations for m in members]))

    def _members(self) -> Iterator[Model]:
        for member in self.members:
            assert isinstance(member, Model)
            yield member

    @property
    def waits_for_host(self) -> bool:
        """Whether scores of a member do."""
        return any(member.waits_for_host for member in self._members())

    # --- rows: those of the members, side by side ---

    def sources(self) -> list[RowSource]:
        """Return the sources of the members' rows as they are stored."""
        return [source for member in self.embeddings() for source in member.sources()]

    def relation_rows(self, relations: Tensor, side: Side) -> Tensor:
        """Return the rows of relations, followed by their weights."""
        rows = [member.relation_rows(relations, side) for member in self._members()]
        return torch.cat([*rows, F.embedding(relations, self.mixing)], -1)

    def prepare_entities(self, rows: Tensor, side: Side, relation: Tensor | None) -> Tensor:
        """Return entity rows as the members' scores use them for queries of a side."""
        own = torch.split(rows, self._split["entity"], -1)
        relations = self._of_relation(relation) if relation is not None else [None] * len(own)
        prepared = [
            member.prepare_entities(part, member.candidate_side[side], row)
            for member, part, row in zip(self._members(), own, relations, strict=True)
        ]
        shape = np.broadcast_shapes(*(part.shape[:-1] for part in prepared))
        return torch.cat([part.expand(*shape, -1) for part in prepared], -1)

    def _of_relation(self, relation: Tensor) -> list[Tensor]:
        return list(torch.split(relation, self._split["relation"], -1)[:-1])

    def make_queries(self, triples: Tensor, side: Side) -> tuple[Tensor, Query]:
        """Return relation rows, followed by their weights, and queries of [B, 3] triples."""
        relation = self.relation_rows(triples[:, 1], side)
        return relation, self.make_query(side, self.entity_rows(triples[:, 2 - COLUMN[side]]), relation)

    def make_query(self, side: Side, anchor: Tensor, relation: Tensor) -> Query:
        """Return the members' queries, packed into one."""
        assert isinstance(self.metric, Mixture)
        anchors = torch.split(anchor, self._split["entity"], -1)
        rows = zip(self._members(), anchors, self._of_relation(relation), strict=True)
        queries = [member.make_query(side, own, row) for member, own, row in rows]
        return self.metric.pack(relation[..., -len(self.members) :], queries), None

    # --- what is derived from rows in another way than that of a single model ---

    def candidate_groups(
        self, triples: Tensor, side: Side, size: int, ids: Tensor | None = None
    ) -> Iterator[tuple[slice | Tensor, Query, Callable[[], Chunks]]]:
        """Yield groups of triples that have the same prepared candidates; those of one relation are together.

        Rules are applied to many queries at once.
        """
        order, ruled = triples[:, 1].argsort(stable=True), self.rule_members()
        for block in torch.split(order, _AHEAD if ruled else max(1, len(order))):
            for member in ruled:
                member.answer_ahead(triples[block], side)
            for part, query, chunks in super().candidate_groups(triples[block], side, size, ids):
                yield block[part], query, chunks

    def as_vectors(self, rows: Tensor) -> Tensor:
        """Return the members' vectors at length 1, side by side: a cosine is the mean of the members' cosines."""
        own = zip(self.embeddings(), torch.split(rows, self._split["entity"], -1), strict=False)  # without rules
        vectors = [F.normalize(member.as_vectors(part).float(), dim=-1) for member, part in own]
        joined: Tensor = torch.cat(vectors, -1) * len(vectors) ** -0.5
        return joined

    def relation_vectors(self, ids: Tensor) -> Tensor:
        """Return the members' vectors side by side, as they are stored."""
        return torch.cat([member.relation_vectors(ids) for member in self.embeddings()], -1)

    def embeddings(self) -> list[Model]:
        """Return the members that are no rules."""
        return [member for member in self._members() if not isinstance(member, RuleModel)]

    def rule_members(self) -> list[RuleModel]:
        """Return the members that are rules."""
        return [member for member in self._members() if isinstance(member, RuleModel)]

    @property
    def rules(self) -> RuleScores | None:
        """The member that is given rules, if there is one."""
        return next((member for member in self.rule_members() if isinstance(member, RuleScores)), None)

    @property
    def has_entity_rules(self) -> bool:
        """Whether rules that name entities are a member."""
        return any(isinstance(member, EntityRules) for member in self.rule_members())


Ensemble.name = "ensemble"  # not in the class body, because an ensemble is made of runs, not trained


def check_weights(weights: Tensor) -> None:
    """Raise a PairREError unless weights are finite numbers of at least 0."""
    if not bool(weights.isfinite().all()) or bool((weights < 0).any()):
        raise PairREError("ensemble: weights must be finite numbers of at least 0")


def _part(member: Model) -> Part:
    """Return how a member scores, and the widths of its rows."""
    metric = member.metric or member.pair_score
    if isinstance(member, RuleModel):
        return Part(metric, None, 0, 1)
    triple: Any = torch.zeros(1, 3, dtype=torch.int64, device=member.device)
    with torch.no_grad():
        (_, (q, w)), (_, other) = (member.make_queries(triple, side) for side in ("tail", "head"))
        relation = member.relation_rows(triple[0, 1], "tail") if member.projects_entities else None
        candidate = member.prepare_entities(member.entity_rows(triple[0, :1]), "tail", relation)
    scale = next((one.shape[-1] for one in (w, other[1]) if one is not None), 0)
    return Part(metric, q.shape[-1], scale, candidate.shape[-1])
