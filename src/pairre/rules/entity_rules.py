"""Rules that name entities, found in train while a query is answered: who was born in Paris is a citizen of France.

For a query (x, r, ?) there are two kinds of rules, both with slots (`slots.py`) as their bodies:

- From x: entities that share a slot with x vote for their own answers to r. That r leads to c is as likely for them as
  the share of them that has c.
- From the answers: slots that known answers to the query share. That an entity with such a slot is an answer, too, is
  as likely as the share of those with the slot that are.

No rule is as sure as its share: five entities more are counted that it is wrong for. It takes two entities to support
one. The score of an answer is √(−Σ log(1 − confidence)) of its three most confident rules, 0 if it has none.

S slots, B queries, K answers of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from pairre.graph import Graph, Side
from pairre.graph.split import distinct
from pairre.rules import evidence
from pairre.rules.evidence import MAX_FACTS, PRIOR, SUPPORT, Scratch
from pairre.rules.slots import Slots
from pairre.support.threads import parallel_for

_MAX_QUICK = 5_000_000  # triples of train, whose slots take seconds and some hundreds of megabytes
_having: Callable[[Slots, int], np.ndarray] = evidence.having.py_func
_facts_of: Callable[[Slots, int, int], tuple[int, int]] = evidence.facts_of.py_func


class FiringEntityRule(NamedTuple):
    """A rule that names entities and concludes a fact of `entity`, which has a slot that is the body."""

    entity: int
    relation: int  # of the slot; R + r is the inverse of r
    other: int  # −1: any entity
    support: int  # entities that have the slot and the fact
    size: int  # entities that have the slot
    confidence: float


class EntityRuleBook:
    """Rules that name entities, as the facts of a graph's train split have them."""

    _of_graph: ClassVar[WeakKeyDictionary[Graph, EntityRuleBook]] = WeakKeyDictionary()

    @classmethod
    def of(cls, graph: Graph) -> EntityRuleBook:
        """Return the book of a graph, which is made once."""
        if graph not in cls._of_graph:
            cls._of_graph[graph] = cls(graph)
        return cls._of_graph[graph]

    @classmethod
    def is_quick(cls, graph: Graph) -> bool:
        """Return whether the book of a graph is made already, or soon."""
        return graph in cls._of_graph or len(graph.train) <= _MAX_QUICK

    def __init__(self, graph: Graph) -> None:
        self.num_entities, self.num_relations = graph.num_entities, graph.num_relations
        sizes = self.num_entities, self.num_relations
        self.slots = Slots.build(distinct(graph.train.numpy(), *sizes), *sizes)
        self._idle: list[Scratch] = []  # of threads that are done

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_idle": []}

    def answers(
        self, relations: np.ndarray, anchors: np.ndarray, side: Side, most: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the best answers on `side` to each query, in any order: entities [K] and scores [K], K ≤ `most`."""
        relations = relations + self.num_relations * (side == "head")
        order = np.argsort(relations, kind="stable")
        arrays = anchors[order].astype(np.int64), relations[order].astype(np.int64)
        entity, score = np.empty((len(order), most), np.int32), np.empty((len(order), most), np.float32)
        num = np.zeros(len(order), np.int64)

        def work(start: int, stop: int) -> None:
            try:
                scratch = self._idle.pop()
            except IndexError:
                scratch = Scratch.empty(self.num_entities, self.slots.num)
            evidence.answer(self.slots, scratch, *arrays, entity, score, num, start, stop)
            self._idle.append(scratch)

        parallel_for(work, len(order))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return [(entity[i, : num[i]].copy(), score[i, : num[i]].copy()) for i in place]

    def firing(self, head: int, relation: int, tail: int) -> list[FiringEntityRule]:
        """Return the rules that conclude a triple from other facts of its head or its tail, most confident first."""
        inverse = relation + self.num_relations
        found = [*self._concluding(head, relation, tail), *self._concluding(tail, inverse, head)]
        return sorted(found, key=lambda rule: (-rule.confidence, -rule.support, rule.other < 0, rule))

    def _concluding(self, entity: int, goal: int, other: int) -> Iterator[FiringEntityRule]:
        """Yield the rules that conclude the fact (goal, other) of an entity, as if it had not that fact."""
        slots, num = self.slots, len(self.slots.group)
        first, stop = _facts_of(slots, other, (goal + self.num_relations) % (2 * self.num_relations))
        having = [self._slots_of(one) for one in slots.other[first:stop][:MAX_FACTS].tolist() if one != entity]
        support = np.bincount(np.concatenate([np.empty(0, np.int64), *having]), minlength=slots.num)
        own_slots = self._slots_of(entity)
        for slot in own_slots[support[own_slots] >= SUPPORT].tolist():
            size = len(_having(slots, slot))
            if slot < num:
                group = int(slots.group[slot])
                body = int(np.searchsorted(slots.entity_start, group, side="right")) - 1
                relation = (int(slots.relation[group]) + self.num_relations) % (2 * self.num_relations)
            else:
                body, relation = -1, slot - num
            own = _facts_of(slots, entity, relation)
            only = relation == goal and (body == other or (own[1] - own[0] == 1 and slots.other[own[0]] == other))
            if not only:
                count = int(support[slot])
                yield FiringEntityRule(entity, relation, body, count, size, count / (size + PRIOR))

    def _slots_of(self, entity: int) -> np.ndarray:
        """Return the slots that an entity has."""
        low, high = self.slots.entity_start[entity : entity + 2]
        own = self.slots.slot[self.slots.group_start[low] : self.slots.group_start[high]]
        return np.concatenate([own[own >= 0], len(self.slots.group) + self.slots.relation[low:high]])
