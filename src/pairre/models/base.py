"""What all models share, written once: the two tables, and every score derived from a query that meets candidates.

B triples, E entities, R relations, K candidates of each query, D features. A higher score is more plausible, always.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pairre import kernels
from pairre.graph import Graph, Side
from pairre.graph.index import COLUMN
from pairre.kernels import reference
from pairre.kernels.reference.compare import meet
from pairre.kernels.reference.rows import wide
from pairre.support.errors import RecipeError
from pairre.support.randomness import key, uniform

Query = tuple[Tensor, Tensor | None]  # q and its scale w, [B, D] each; None: 1
Width = int | Callable[[int], int]  # of a part of a row: a multiple of dim, or a function of it
Shape = Callable[[int], tuple[int, ...]]  # of a dense weight, for so many features
Ids = dict[str, Tensor]  # rows of each table
Constraint = Callable[["Model", Tensor], Tensor]  # rows as stored → rows that may be stored
Chunks = Iterator[tuple[int, Tensor]]  # prepared entity rows, each piece with the id of its first
_BUDGET = 1 << 24  # elements of a temporary
_WEIGHT_ROW = 1024  # dense weights in a row of their table


class Sets(NamedTuple):
    """How the negatives of a batch lie."""

    number: int  # of sets, of equal size
    share: int  # positives in a row that meet one set
    place: Tensor | None = None  # [B, K]: instead, any rows, of which positive b meets place[b]
    alike: tuple[Tensor, Tensor] | None = None  # a position for each relation of the batch; which one each position has


class Model(torch.nn.Module):
    """Two tables and a score; a subclass is its maths: `prepare`, `tail_query`, `head_query` and a `kind` of compare.

    Rows have named parts (`entity_parts`, `relation_parts`). Where a candidate depends on the relation, `projected` is
    set and `prepare` is given the relation's parts; it must broadcast over leading dimensions. With `reciprocal`, every
    relation has a second row, by which (?, r, t) is asked as (t, r⁻¹, ?). What belongs to no row is a dense weight
    (`weight_parts`), found as `self.dense`.

    The entity table may be stored in half precision; rows are computed with in float32.
    """

    name: ClassVar[str]
    formula: ClassVar[str]
    paper: ClassVar[str]
    kind: kernels.Kind | None  # how a query meets a candidate; None: by `meet`, a formula of the model's own
    kinds: ClassVar[tuple[kernels.Kind, ...]] = ()  # others that may be asked for
    entity_parts: ClassVar[dict[str, Width]] = {"vector": 1}
    relation_parts: ClassVar[dict[str, Width]]
    weight_parts: ClassVar[dict[str, Shape]] = {}
    patterns: ClassVar[frozenset[str]] = frozenset()  # of relations, that the formula can hold for all entities
    projected: ClassVar[bool] = False
    directional: ClassVar[bool] = False  # whether a triple's score depends on the side that is asked for
    one_way: ClassVar[bool] = False  # whether it can only ask for tails, so that relations are always reciprocal
    asks_relations: ClassVar[bool] = True  # whether all relations of a pair of entities can be scored in training
    dropout: Mapping[str, float] = {}  # shares of each layer that its paper sets to 0 in training
    constraints: Mapping[str, Constraint] = {}  # what rows of a table are brought to after each step
    rule_modes: ClassVar[frozenset[str]] = frozenset()  # how it can follow rules: "tie", "soft"

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        dim: int,
        storage: str = "float32",
        kind: kernels.Kind | None = None,
        reciprocal: bool = False,
        dropout: Sequence[float] = (),
        unit: bool = False,
    ) -> None:
        super().__init__()
        if kind is not None and kind != self.kind:
            if kind not in self.kinds:
                has = " or ".join(str(k) for k in (self.kind, *self.kinds) if k)
                raise RecipeError(f"model.norm: {self.name} has {has or 'its own'}, not {kind}")
            self.kind = kind
        if dropout:
            if len(dropout) != len(self.dropout):
                layers = ", ".join(self.dropout) or "none"
                each = f"a share for each layer of {self.name} expected ({layers})"
                raise RecipeError(f"model.dropout: {each}, not {len(dropout)}")
            self.dropout = dict(zip(self.dropout, dropout, strict=True))
        if unit:
            if "entity" in self.constraints:
                raise RecipeError(f"model.unit_norm: rows of {self.name} have bounds of their own")
            self.constraints = {**self.constraints, "entity": lambda _, rows: F.normalize(rows, dim=-1)}
        self.num_entities, self.num_relations, self.dim = num_entities, num_relations, dim
        self.reciprocal = reciprocal or self.one_way
        self._widths = {
            "entity": {part: self._width(width) for part, width in self.entity_parts.items()},
            "relation": {part: self._width(width) for part, width in self.relation_parts.items()},
        }
        sizes = {table: sum(widths.values()) for table, widths in self._widths.items()}
        self.entity = torch.nn.Parameter(torch.empty(num_entities, sizes["entity"], dtype=getattr(torch, storage)))
        self.relation = torch.nn.Parameter(torch.empty(num_relations * (1 + self.reciprocal), sizes["relation"]))
        if self.weight_parts:  # as rows, so that optimisers of rows move them
            self.weights = torch.nn.Parameter(torch.empty(-(-self.num_weights(dim) // _WEIGHT_ROW), _WEIGHT_ROW))
        self.clock: Tensor | None = None  # the step, while it trains
        self.eval()

    def _width(self, width: Width) -> int:
        return self.dim * width if isinstance(width, int) else width(self.dim)

    def initialise(self, bound: float, seed: int) -> None:
        """Both tables uniform in ±bound, the same on every device."""
        for name, table in self.named_parameters():
            flat, stream = table.detach().view(-1), key(seed, "init", name)
            for start in range(0, len(flat), _BUDGET):
                part = flat[start : start + _BUDGET]
                counter = torch.arange(start, start + len(part), device=part.device)
                part.copy_(uniform(stream, counter).mul_(2 * bound).sub_(bound))
            self.constrain(name, table.detach())

    def begin(self, graph: Graph, seed: int) -> None:
        """What the first rows take from the training graph, after the uniform draw."""

    @property
    def dense(self) -> SimpleNamespace:
        """The dense weights by name, each in its shape."""
        shapes = {name: shape(self.dim) for name, shape in self.weight_parts.items()}
        sizes = [math.prod(shape) for shape in shapes.values()]
        parts = torch.split(self.weights.flatten()[: sum(sizes)], sizes)
        return SimpleNamespace(**{n: part.view(shapes[n]) for n, part in zip(shapes, parts, strict=True)})

    @classmethod
    def num_weights(cls, dim: int) -> int:
        """How many dense weights there are."""
        return sum(math.prod(shape(dim)) for shape in cls.weight_parts.values())

    def constrain(self, name: str, rows: Tensor) -> Tensor:
        """Bring rows of a table, in place, to what they may be."""
        if name in self.constraints:
            rows.copy_(self.constraints[name](self, rows))
        return rows

    @classmethod
    def num_parameters(cls, num_entities: int, num_relations: int, dim: int) -> int:
        """How many numbers the model learns on a graph."""
        with torch.device("meta"):
            model = cls(num_entities, num_relations, dim)
        return model.entity.numel() + model.relation.numel() + cls.num_weights(dim)

    # --- a model's own maths ---

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Entity rows as the score uses them on a side (`e.side`); `r` is given only where the model is `projected`."""
        vector: Tensor = e.vector
        return vector

    def prepare_relations(self, rows: Tensor) -> Tensor:
        """All relation rows as the maths takes them, where that is worth doing once for all queries."""
        return rows

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """What every candidate tail of (h, r) is compared with."""
        raise NotImplementedError

    def head_query(self, r: Any, t: Tensor) -> Query:
        """What every candidate head of (r, t) is compared with."""
        raise NotImplementedError

    def meet(self, q: Tensor, w: Tensor | None, c: Tensor) -> Tensor:
        """Scores of queries and candidates [..., D] whose leading dimensions broadcast."""
        assert self.kind is not None
        return meet(self.kind, q, w, c)

    def implied(self, stored: Tensor, bodies: Tensor) -> Tensor:
        """Relation rows [n, ·] whose scores are never below those of `bodies` [n, K, ·], whatever is stored."""
        raise NotImplementedError

    def aligned(self, stored: Tensor, first: Tensor) -> Tensor:  # noqa: ARG002
        """Rows of relations that nothing implies, but that share what they imply with those of `first` rows."""
        return stored

    def rule_penalty(self, inverse: bool, body: Any, head: Any) -> Tensor:
        """How far parts of n relations are from body(x, y) ⇒ head(x, y), or head(y, x), each, [n]."""
        raise NotImplementedError

    # --- derived: the model's way of comparing, by kernels where its kind has them ---

    @property
    def _by(self) -> tuple[Any, Any]:
        """Whose functions compare, and what they are told."""
        return (ops, self.kind) if self.kind else (reference, self.meet)

    def compare(self, q: Tensor, w: Tensor | None, candidates: Tensor, ids: Tensor | None = None) -> Tensor:
        """Scores of queries against all candidate rows, [B, N], or against rows `ids` [B, K]."""
        functions, how = self._by
        scores: Tensor = functions.compare(how, q, w, candidates, ids)
        return scores

    def compare_pairs(self, q: Tensor, w: Tensor | None, candidates: Tensor) -> Tensor:
        """Scores [B] of query b against candidate row b."""
        functions, how = self._by
        scores: Tensor = functions.pairs(how, q, w, candidates)
        return scores

    def true_scores(self, q: Tensor, w: Tensor | None, candidates: Tensor) -> Tensor:
        """As `compare_pairs`, in the very bits that `count_above` compares with."""
        functions, how = self._by
        scores: Tensor = functions.true_scores(how, q, w, candidates)
        return scores

    def count_above(self, q: Tensor, w: Tensor | None, *arguments: Any) -> tuple[Tensor, Tensor]:
        """How many candidates score above the true one, and the same; see `kernels.count_above`."""
        functions, how = self._by
        counts: tuple[Tensor, Tensor] = functions.count_above(how, q, w, *arguments)
        return counts

    # --- derived: from rows ---

    def parts(self, table: str, rows: Tensor) -> SimpleNamespace:
        """Rows of a table by the names of their parts."""
        widths = self._widths[table]
        return SimpleNamespace(**dict(zip(widths, torch.split(rows, list(widths.values()), dim=-1), strict=True)))

    def prepared(self, entity: Tensor, side: Side, relation: Tensor | None) -> Tensor:
        """Entity rows as the score uses them on a side of a relation."""
        e = self.parts("entity", entity)
        e.side = side
        return self.prepare(e, None if relation is None else self.parts("relation", relation))

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Query:
        """What candidates on a side meet, from rows of the entity on the other side and rows of the relation."""
        r = self.parts("relation", relation)
        if side == "tail" or self.reciprocal:
            return self.tail_query(self.prepared(anchor, "head", relation), r)
        return self.head_query(r, self.prepared(anchor, "tail", relation))

    def candidate_side(self, side: Side) -> Side:
        """The side that candidates stand on: with reciprocal relations always the tail."""
        return "tail" if self.reciprocal else side

    def reads(self, side: Side, ids: Ids) -> tuple[Ids, Callable[[Ids], tuple[Tensor, Tensor]]]:  # noqa: ARG002
        """Which rows a step must read for these of its batch, and how entity and relation rows are made of them.

        The rows themselves, unless a model looks further.
        """
        return ids, lambda rows: (rows["entity"], rows["relation"])

    def batch_scores(self, side: Side, entity: Tensor, relation: Tensor, sets: Sets) -> tuple[Tensor, Tensor]:
        """Scores [B] of positives and [B, K] of their negatives, from rows as they are stored.

        `entity` holds B rows of anchors, B of the true entities on `side`, then the negatives, as `sets` says.
        """
        size = len(relation)
        there = self.candidate_side(side)
        anchor, true, others = torch.split(entity, [size, size, len(entity) - 2 * size])
        q, w = self.query(side, anchor, relation)
        positive = self.compare_pairs(q, w, self.prepared(true, there, relation))
        num_sets, share, place, alike = sets
        if alike and len(alike[0]) * len(others) * max(q.shape[1], others.shape[1]) <= 4 * _BUDGET:
            each = self.prepared(others[None], there, F.embedding(alike[0], relation)[:, None])
            numbers = torch.arange(len(others), device=q.device)
            return positive, self.compare(q, w, each.flatten(0, 1), alike[1][:, None] * len(others) + numbers)
        if self.projected:
            rows = others[place] if place is not None else others.view(num_sets, -1, others.shape[1])
            if place is None and num_sets > 1:
                rows = rows.repeat_interleave(share, 0)[:size]
            return positive, self._projected_scores(there, q, w, relation, rows)
        others = self.prepared(others, there, None)
        if num_sets == 1 or place is not None:
            return positive, self.compare(q, w, others, place)
        scales = [None] * num_sets if w is None else torch.split(w, share)
        chunks = zip(torch.split(q, share), scales, others.chunk(num_sets), strict=True)
        return positive, torch.cat([self.compare(*chunk) for chunk in chunks])

    def relation_scores(self, side: Side, ends: Tensor, relations: Tensor) -> Tensor:
        """Scores [B, R] of relation rows between pairs of entities, asked for `side`.

        `ends` holds B rows of anchors, then B of the entities on `side`. A chunk of pairs at a time, as below.
        """

        def chunk(anchor: Tensor, true: Tensor) -> Tensor:
            shape = (len(anchor), len(relations), -1)
            anchor, true = (rows[:, None].expand(shape) for rows in (anchor, true))
            rows = relations.expand(shape)
            q, w = self.query(side, anchor, rows)
            return self.meet(q, w, self.prepared(true, self.candidate_side(side), rows))

        size = max(1, _BUDGET // (len(relations) * max(ends.shape[1], relations.shape[1])))
        parts = zip(*(torch.split(rows, size) for rows in ends.chunk(2)), strict=True)
        return torch.cat([checkpoint(chunk, *p, use_reentrant=False, preserve_rng_state=False) for p in parts])

    def _projected_scores(self, side: Side, q: Tensor, w: Tensor | None, relation: Tensor, entity: Tensor) -> Tensor:
        """Scores [B, K] where candidates depend on the relation; `entity` [B or 1, K, ·] as stored.

        A chunk of queries at a time, computed again for the gradient, so that memory stays bounded.
        """

        def chunk(q: Tensor, w: Tensor | None, relation: Tensor, entity: Tensor) -> Tensor:
            c = self.prepared(entity, side, relation[:, None])
            return self.meet(q[:, None], None if w is None else w[:, None], c)

        size = max(1, _BUDGET // (entity.shape[1] * max(q.shape[1], self.relation.shape[1])))
        if len(q) <= size:
            return chunk(q, w, relation, entity)
        scores = []
        for start in range(0, len(q), size):
            part = slice(start, start + size)
            mine = entity if len(entity) == 1 else entity[part]
            scale = None if w is None else w[part]
            inputs = (q[part], scale, relation[part], mine)
            scores.append(checkpoint(chunk, *inputs, use_reentrant=False, preserve_rng_state=False))
        return torch.cat(scores)

    # --- derived: from ids ---

    def relation_ids(self, relations: Tensor, side: Side) -> Tensor:
        """Rows of relations that are asked from a side."""
        return relations + self.num_relations if self.reciprocal and side == "head" else relations

    def relation_rows(self, ids: Tensor) -> Tensor:
        """Rows of relations as the maths takes them."""
        return F.embedding(ids, self.prepare_relations(self.relation))

    def entity_rows(self, ids: Tensor | slice) -> Tensor:
        """Rows of entities as stored, in the precision they are computed with."""
        rows = self.entity[ids] if isinstance(ids, slice) else F.embedding(ids, self.entity)
        return rows.to(wide(self.entity.dtype))

    def asked(self, triples: Tensor, side: Side) -> tuple[Tensor, Query]:
        """Relation rows and queries of [B, 3] triples whose member on `side` is ignored."""
        relation = self.relation_rows(self.relation_ids(triples[:, 1], side))
        return relation, self.query(side, self.entity_rows(triples[:, 2 - COLUMN[side]]), relation)

    def score(self, triples: Tensor, side: Side = "tail") -> Tensor:
        """Scores [B] of [B, 3] triples, asked for their tails; the side matters if `directional` or `reciprocal`."""
        relation, (q, w) = self.asked(triples, side)
        own = self.entity_rows(triples[:, COLUMN[side]])
        return self.compare_pairs(q, w, self.prepared(own, self.candidate_side(side), relation))

    def score_candidates(self, triples: Tensor, side: Side, candidates: Tensor) -> Tensor:
        """Scores of entities put on `side`: candidates [K] for all triples or [B, K]; the result is [B, K]."""
        relation, (q, w) = self.asked(triples, side)
        there = self.candidate_side(side)
        if self.projected:
            rows = self.entity_rows(candidates)
            return self._projected_scores(there, q, w, relation, rows[None] if candidates.dim() == 1 else rows)
        rows, ids = torch.unique(candidates, return_inverse=True)
        table = self.prepared(self.entity_rows(rows), there, None)
        if candidates.dim() == 1:
            return self.compare(q, w, F.embedding(ids, table))
        return self.compare(q, w, table, ids)

    def score_all(self, triples: Tensor, side: Side) -> Tensor:
        """Scores [B, E] of every entity on `side`."""
        _, (q, w) = self.asked(triples, side)
        scores = torch.empty(len(triples), self.num_entities, dtype=q.dtype, device=q.device)
        for part, chunks in self.rankings(triples, side, len(triples)):
            scale = None if w is None else w[part]
            pieces = [self.compare(q[part], scale, rows) for _, rows in chunks()]
            scores[part] = torch.cat(pieces, 1)
        return scores

    def rankings(self, triples: Tensor, side: Side, size: int) -> Iterator[tuple[slice | Tensor, Callable[[], Chunks]]]:
        """Triples that can meet the same prepared entities, `size` at a time, with those entities in chunks.

        That is any of them, or those of one relation where candidates depend on it.
        """
        if not self.projected:
            for start in range(0, len(triples), size):
                yield slice(start, start + size), lambda: self.candidate_chunks(side, None)
            return
        for relation in torch.unique(triples[:, 1]):
            row = self.relation_rows(self.relation_ids(relation, side))
            for part in torch.split((triples[:, 1] == relation).nonzero()[:, 0], size):
                yield part, lambda row=row: self.candidate_chunks(side, row)  # type: ignore[misc]

    def candidate_chunks(self, side: Side, relation: Tensor | None) -> Chunks:
        """Prepared entity rows in chunks of bounded size, each with the id of its first row."""
        size = max(1024, 2 * _BUDGET // self.entity.shape[1])
        for start in range(0, self.num_entities, size):
            rows = self.entity_rows(slice(start, start + size))
            yield start, self.prepared(rows, self.candidate_side(side), relation)

    def score_tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Scores [B, E] of every tail of (head, relation)."""
        return self.score_all(torch.stack([heads, relations, heads], 1), "tail")

    def score_heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """Scores [B, E] of every head of (relation, tail)."""
        return self.score_all(torch.stack([tails, relations, tails], 1), "head")

    def score_relations(self, heads: Tensor, tails: Tensor) -> Tensor:
        """Scores [B, R] of every relation between head and tail."""
        size = max(1, _BUDGET // (self.num_relations * self.relation.shape[1]))
        relations = torch.arange(self.num_relations, device=heads.device)
        parts = []
        for start in range(0, len(heads), size):
            h, t = heads[start : start + size], tails[start : start + size]
            grid = torch.stack(
                [h.repeat_interleave(len(relations)), relations.repeat(len(h)), t.repeat_interleave(len(relations))], 1
            )
            parts.append(self.score(grid).view(len(h), -1))
        return torch.cat(parts)
