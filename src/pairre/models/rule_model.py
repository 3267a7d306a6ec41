"""Models without weights, which only an ensemble has beside others: what rules conclude, as scores.

The row of an entity is its id, that of a relation its id and the side that is queried. A query holds what the rules
answer to it: [2A] numbers, in turn an entity and its score; −1 stands for none. What no rule concludes scores 0.

B queries, N candidate rows, K candidates of each query, A answers.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.graph.index import COLUMN
from pairre.kernels import BlockFormula
from pairre.models.contract import Query
from pairre.models.scoring import LocalRows, Model
from pairre.support.errors import RuleError
from pairre.support.memory import available_bytes

MAX_ANSWERS = 1 << 10  # of a query: the others count as not concluded
_MAX_ENTITIES = 1 << 24  # whose ids are exact in float32
_MAX_CACHED = 1 << 31  # bytes of answers that are kept
_SHARE_CACHED = 16  # one part in so many of the memory that there is
_UNIT = 2.0**-30  # rows hold ids in this unit, so that they are small beside the features of other models

Answers = tuple[np.ndarray, np.ndarray]  # to one query: entities [A] and their scores [A]
_Key = tuple[Side, int, int]  # a query: side, anchor and relation


class _HeldScore(BlockFormula):
    """The score that a query holds for a candidate, 0 if it holds none."""

    def __call__(self, q: Tensor, w: Tensor | None, c: Tensor) -> Tensor:  # noqa: ARG002
        """Return the scores of pairs."""
        return ((q[..., 0::2] == c) * q[..., 1::2]).sum(-1)

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
        entities, held = query[:, 0::2].contiguous(), query[:, 1::2]
        candidates, order = rows[:, 0].contiguous().sort()
        scores = held.new_zeros(len(query), len(rows))
        # Equal candidates stand beside each other, and the first of them is found.
        place = torch.searchsorted(candidates, entities)
        found = (place < len(rows)) & (candidates[place.clamp(max=max(0, len(rows) - 1))] == entities)
        row, column = found.nonzero(as_tuple=True)
        scores[row, order[place[row, column]]] = held[row, column]
        if len(rows) > 1 and bool((candidates[1:] == candidates[:-1]).any()):
            first = torch.searchsorted(candidates, candidates)
            scores[:, order] = scores[:, order[first]]
        return scores if ids is None else scores.gather(1, ids)


class AnswerCache:
    """Answers to the queries that were asked last, within a bounded number of bytes; a copy of it is empty."""

    def __init__(self) -> None:
        self._held: dict[_Key, np.ndarray] = {}
        self._size, self._lock = 0, threading.Lock()
        self._room = min(_MAX_CACHED, (available_bytes() or _MAX_CACHED) // _SHARE_CACHED)

    def __reduce__(self) -> tuple[type[AnswerCache], tuple[()]]:
        return AnswerCache, ()

    def get(self, key: _Key) -> np.ndarray | None:
        """Return what a query holds, if it is known."""
        return self._held.get(key)

    def add(self, found: dict[_Key, np.ndarray]) -> None:
        """Keep what queries hold; the oldest go where there is no room."""
        with self._lock:
            for key, held in found.items():
                if key not in self._held:
                    self._held[key] = held
                    self._size += held.nbytes
            while self._size > self._room:
                self._size -= self._held.pop(next(iter(self._held))).nbytes


class RuleModel(Model):
    """What rules answer to queries, as a model; a subclass says what they answer."""

    paper = ""
    entity_parts = {"id": lambda _: 1}
    relation_parts = {"id": lambda _: 1, "side": lambda _: 1}

    def __init__(self, graph: Graph, cache: AnswerCache) -> None:
        """Take a graph, of whose train split rules conclude something, and what is known of that."""
        torch.nn.Module.__init__(self)
        if graph.num_entities > _MAX_ENTITIES:
            raise RuleError(f"rules in an ensemble: at most {_MAX_ENTITIES:,} entities, not {graph.num_entities:,}")
        self.num_entities, self.num_relations = graph.num_entities, graph.num_relations
        self.dim = 2 * min(MAX_ANSWERS, graph.num_entities)
        self.cache = cache
        self.metric = _HeldScore()
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

    @property
    def described(self) -> str:
        """What a person calls the member of an ensemble."""
        raise NotImplementedError

    def answers(self, relations: np.ndarray, anchors: np.ndarray, side: Side) -> Sequence[Answers]:
        """Return the answers to each of B distinct queries, `MAX_ANSWERS` at most."""
        raise NotImplementedError

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
        held = self._held(side, anchors, relations)
        width = max((len(row) for row in held), default=0)
        table = np.full((len(held), width), -1, np.float32)
        for row, filled in zip(held, table, strict=True):
            filled[: len(row)] = row
        return torch.from_numpy(table).to(device).view(*shape, width), None

    def answer_ahead(self, triples: Tensor, side: Side) -> None:
        """Answer the queries of [B, 3] triples together, which is quicker than some of them at a time."""
        self._held(side, *(triples[:, column].cpu().numpy() for column in (2 - COLUMN[side], 1)))

    def _held(self, side: Side, anchors: np.ndarray, relations: np.ndarray) -> list[np.ndarray]:
        """Return what each of B queries holds."""
        keys: list[_Key] = [(side, *ids) for ids in zip(anchors.tolist(), relations.tolist(), strict=True)]
        found = {key: self.cache.get(key) for key in keys}
        if new := [key for key, held in found.items() if held is None]:
            asked = np.array([key[1:] for key in new])
            answers = self.answers(asked[:, 1], asked[:, 0], side)
            made = {key: _interleaved(*answer) for key, answer in zip(new, answers, strict=True)}
            self.cache.add(made)
            found |= made
        return [held for key in keys if (held := found[key]) is not None]


def _ids(rows: Tensor) -> np.ndarray:
    """Return the ids of rows as one list."""
    found: np.ndarray = (rows.detach().flatten().cpu().double() / _UNIT).round().long().numpy()
    return found


def _interleaved(entities: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return answers as a query holds them."""
    held = np.empty(2 * len(entities), np.float32)
    held[0::2], held[1::2] = entities * np.float32(_UNIT), scores
    return held
