"""Rules as a model: the score of a triple is the confidence of the rules that conclude it from facts, else 0.

The row of an entity is its id, that of a relation its id and the side that is queried. A query holds what the rules
answer to it, the most confident answers first: [A] entities, then [A] confidences; −1 stands for no entity.

B queries, N candidate rows, K candidates of each query, A answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.kernels import BlockFormula
from pairre.models.contract import Query
from pairre.models.scoring import LocalRows, Model
from pairre.rules import Rule, RuleBook
from pairre.rules.apply import Combine
from pairre.support.errors import RuleError

MAX_ANSWERS = 1 << 10  # of a query: the others count as not concluded
_MAX_ENTITIES = 1 << 24  # whose ids are exact in float32
_UNIT = 2.0**-30  # rows hold ids in this unit, so that they are small beside the features of other models


class _Confidence(BlockFormula):
    """The confidence that a query holds for a candidate, 0 if it holds none."""

    def __call__(self, q: Tensor, w: Tensor | None, c: Tensor) -> Tensor:  # noqa: ARG002
        """Return the scores of pairs."""
        entities, confidences = q.chunk(2, -1)
        return ((entities == c) * confidences).sum(-1)

    def true_scores(self, query: Tensor, scale: Tensor | None, rows: Tensor) -> Tensor:
        """Return the scores [B] of query b against row b."""
        return self(query, scale, rows)

    def score_candidates(
        self,
        query: Tensor,
        scale: Tensor | None,  # noqa: ARG002
        rows: Tensor,
        ids: Tensor | None = None,
    ) -> Tensor:
        """Return scores [B, N] of all pairs, or [B, K] of query b and rows ids[b]."""
        entities, confidences = query.chunk(2, -1)
        candidates, order = rows[:, 0].contiguous().sort()
        scores = confidences.new_zeros(len(query), len(rows))
        # Equal candidates stand beside each other, and the first of them is found.
        place = torch.searchsorted(candidates, entities.contiguous())
        found = (place < len(rows)) & (candidates[place.clamp(max=max(0, len(rows) - 1))] == entities)
        row, column = found.nonzero(as_tuple=True)
        scores[row, order[place[row, column]]] = confidences[row, column]
        if len(rows) > 1 and bool((candidates[1:] == candidates[:-1]).any()):
            first = torch.searchsorted(candidates, candidates)
            scores[:, order] = scores[:, order[first]]
        return scores if ids is None else scores.gather(1, ids)


class RuleScores(Model):
    """A model without weights, which only an ensemble has beside others."""

    formula = "confidence of the rules that conclude (h, r, t)"
    paper = ""
    entity_parts = {"id": lambda _: 1}
    relation_parts = {"id": lambda _: 1, "side": lambda _: 1}

    def __init__(self, graph: Graph, rules: Sequence[Rule], combine: Combine = "max") -> None:
        """Take rules, which are applied to the training triples of a graph."""
        torch.nn.Module.__init__(self)
        if graph.num_entities > _MAX_ENTITIES:
            raise RuleError(f"rules in an ensemble: at most {_MAX_ENTITIES:,} entities, not {graph.num_entities:,}")
        self.num_entities, self.num_relations = graph.num_entities, graph.num_relations
        self.dim = 2 * min(MAX_ANSWERS, graph.num_entities)
        self.rules, self.combine = list(rules), combine
        self.book = RuleBook(graph, self.rules, graph.train, combine)
        self.metric = _Confidence()
        self.reciprocal = False
        self.candidate_side = {"tail": "tail", "head": "head"}
        self.relation_offset = {"tail": 0, "head": 0}
        self._widths = {"entity": {"id": 1}, "relation": {"id": 1, "side": 1}}
        ids = torch.arange(max(graph.num_entities, graph.num_relations)) * _UNIT
        self.register_buffer("entity", ids[: graph.num_entities, None].clone(), persistent=False)
        self.register_buffer("relation", ids[: graph.num_relations, None].expand(-1, 2).clone(), persistent=False)
        self.stored = {}
        self._note_storage()
        self.step, self.attached_with = None, None
        self.eval()

    def _note_storage(self) -> None:
        super()._note_storage()
        self.set_rows(LocalRows(self.entity), LocalRows(self.relation))  # a buffer that moves is another tensor

    @property
    def waits_for_host(self) -> bool:
        """Rules are applied by the host."""
        return True

    def relation_rows(self, relations: Tensor, side: Side) -> Tensor:
        """Return the ids of relations, and the side."""
        rows = super().relation_rows(relations, side)
        rows[..., 1] = float(side == "tail")
        return rows

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Return the id."""
        rows: Tensor = e.id
        return rows

    def make_query(self, side: Side, anchor: Tensor, relation: Tensor) -> Query:
        """Return the answers of the rules."""
        shape, device = anchor.shape[:-1], anchor.device
        anchors, relations = (_ids(rows[..., :1]) for rows in (anchor, relation.expand(*shape, -1)))
        query, entity, confidence = self.book.answers(relations, anchors, side)
        query, place, entity, confidence = _most_confident(query, entity, confidence)
        width = int(place.max(initial=-1)) + 1
        table = np.zeros((len(anchors), 2, width), np.float32)
        table[:, 0] = -1
        table[query, 0, place] = entity.astype(np.float32) * np.float32(_UNIT)
        table[query, 1, place] = confidence
        return torch.from_numpy(table).to(device).view(*shape, 2 * width), None


def _ids(rows: Tensor) -> np.ndarray:
    """Return the ids of rows as one list."""
    found: np.ndarray = (rows.detach().flatten().cpu().double() / _UNIT).round().long().numpy()
    return found


def _most_confident(
    query: np.ndarray, entity: np.ndarray, confidence: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the `MAX_ANSWERS` most confident answers of each query, with their places; equal ones by their ids."""
    order = np.lexsort((entity, -confidence, query))
    query, entity, confidence = query[order], entity[order], confidence[order]
    first = np.searchsorted(query, query)
    place = np.arange(len(query)) - first
    kept = place < MAX_ANSWERS
    return query[kept], place[kept], entity[kept], confidence[kept]


RuleScores.name = "rules"  # not in the class body, because a recipe cannot name it
