"""The entities that make sense on a side of a relation: those that train shows there, and unseen ones like them.

A slot is a side of a relation. What an entity fills (slots, and types if the graph has them) says what kind of thing it
is. How often a new triple shows a new entity in a slot is estimated from the members that train shows there once (Good
and Turing). Each of these, taken for unseen, also shows how similar an unseen member may be to the others. That gives
the similarity from which an unseen entity is plausible: the one that loses a given share of true answers.

E entities, S slots, F features: the slots, then the types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pairre.graph.index import Side
from pairre.graph.split import distinct

if TYPE_CHECKING:
    from pairre.graph.graph import Graph

MAX_LOSS = 0.01  # of the true answers of a slot, as estimated; chosen on validation triples (docs/log.md)
_MAX_KEPT = 1 << 24  # numbers that a cache holds, 128 MiB
_CHUNK = 1 << 18  # entities that are compared at once
_NONE = np.empty(0, np.int64)
_SLACK = 1e-9  # for sums of the same numbers in another order


@dataclass(frozen=True, eq=False)
class _Profile:
    """What the members of a slot have in common, and how similar to it an unseen entity must be."""

    weights: np.ndarray  # [F] the number of members with a feature, times its weight; 0 for the slot itself
    threshold: float | None  # None if no unseen entity is plausible


class Domains:
    """The domain and the range of every relation of a graph; each is computed when it is asked for."""

    def __init__(self, graph: Graph, max_loss: float = MAX_LOSS) -> None:
        self._num_entities, self._max_loss = graph.num_entities, max_loss
        triples = distinct(graph.train.numpy(), graph.num_entities, graph.num_relations).astype(np.int64)
        head, relation, tail = triples.T
        self._loops = np.bincount(relation[head == tail], minlength=graph.num_relations) > 0
        keys = np.concatenate([2 * relation, 2 * relation + 1]) * graph.num_entities + np.concatenate([head, tail])
        keys, self._counts = np.unique(keys, return_counts=True)
        slots, self._members = np.divmod(keys, graph.num_entities)
        self._first_member = _offsets(slots, 2 * graph.num_relations)
        pairs = graph.entity_types
        entities, types = (pairs.entities.numpy(), pairs.types.numpy()) if pairs else (_NONE, _NONE)
        entities, features = np.r_[self._members, entities], np.r_[slots, 2 * graph.num_relations + types]
        order = np.argsort(entities, kind="stable")
        self._features = features[order]
        self._first_feature = _offsets(entities[order], graph.num_entities)
        # A feature of few entities says more about what an entity is than a feature of many.
        frequency = np.bincount(features, minlength=2 * graph.num_relations)
        self._weight = np.log(graph.num_entities / np.maximum(frequency, 1))  # [F]
        self._total = np.bincount(entities, self._weight[features], graph.num_entities)  # [E]
        self._profiles: dict[int, _Profile] = {}
        self._plausible: dict[int, Tensor] = {}

    def has_loops(self, relation: int) -> bool:
        """Return whether train has a triple of the relation whose head is its tail."""
        return bool(self._loops[relation])

    def observed(self, relation: int, side: Side) -> Tensor:
        """Return the ids, ascending int64, of the entities that train shows on a side of a relation."""
        return torch.from_numpy(self._slot_members(_slot(relation, side)))

    def plausible(self, relation: int, side: Side) -> Tensor:
        """Return the ids, ascending int64, of the observed entities and of the unseen ones that are like them.

        An entity of which train says nothing is plausible wherever unseen ones are. For a relation that train lacks,
        every entity is plausible.
        """
        slot = _slot(relation, side)
        found = self._plausible.get(slot)  # another thread may empty the cache
        if found is None:
            ids = self._slot_members(slot)
            if self._profile(slot).threshold is not None:
                starts = range(0, self._num_entities, _CHUNK)
                chunks = (np.arange(start, min(start + _CHUNK, self._num_entities)) for start in starts)
                ids = np.concatenate([chunk[self._allowed(slot, chunk)] for chunk in chunks])
            _make_room(self._plausible, sum(map(len, self._plausible.values())) + len(ids))
            self._plausible[slot] = found = torch.from_numpy(ids)
        return found

    def allows(self, relation: int, side: Side, entities: Tensor) -> Tensor:
        """Return which of some entities are plausible on a side of a relation, without looking at all the others."""
        return torch.from_numpy(self._allowed(_slot(relation, side), entities.cpu().numpy()))

    def _slot_members(self, slot: int) -> np.ndarray:
        return self._members[self._first_member[slot] : self._first_member[slot + 1]]

    def _allowed(self, slot: int, ids: np.ndarray) -> np.ndarray:
        """Return which entities are observed in a slot or similar enough to those that are."""
        members = self._slot_members(slot)
        place = np.searchsorted(members, ids)
        observed = members[np.minimum(place, len(members) - 1)] == ids if len(members) else np.zeros(len(ids), np.bool_)
        if observed.all():
            return observed
        profile = self._profile(slot)
        if profile.threshold is None:
            return observed
        similarity = self._similarity(profile.weights, ids, np.where(observed, self._weight[slot], 0))
        return np.asarray(observed | (similarity >= profile.threshold - _SLACK))

    def _profile(self, slot: int) -> _Profile:
        """Return the profile of a slot, with a threshold by which at most `max_loss` of true answers are left out."""
        found = self._profiles.get(slot)
        if found is None:
            members = self._slot_members(slot)
            _, features = self._features_of(members)
            weights = np.bincount(features, minlength=len(self._weight)) * self._weight
            weights[slot] = 0
            counts = self._counts[self._first_member[slot] : self._first_member[slot + 1]]
            once = members[counts == 1]
            # A member that is taken for unseen is compared with the others: it does not count itself.
            similarity = np.sort(self._similarity(weights, once, self._weight[slot], itself=1))
            num_lost = int(self._max_loss * counts.sum())
            threshold = float(similarity[num_lost]) if num_lost < len(once) else None
            _make_room(self._profiles, (len(self._profiles) + 1) * len(weights))
            self._profiles[slot] = found = _Profile(weights, threshold if len(members) else -np.inf)
        return found

    def _similarity(self, weights: np.ndarray, ids: np.ndarray, own: np.ndarray | float, itself: int = 0) -> np.ndarray:
        """Return the cosine of entities to a profile, up to a factor of the profile; without features it is infinite.

        `own` is the weight of the profile's slot where an entity fills it, which must not count. With `itself`, an
        entity is one of those that the profile was made of, and is taken out of it.
        """
        row, features = self._features_of(ids)
        total = self._total[ids] - own
        dot = np.bincount(row, weights[features], len(ids)) - itself * total
        known = total > _SLACK
        return np.where(known, dot / np.sqrt(np.where(known, total, 1)), np.inf)

    def _features_of(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the features of entities, flat: (position of the entity in `ids`, feature)."""
        begin, length = self._first_feature[ids], self._first_feature[ids + 1] - self._first_feature[ids]
        row = np.repeat(np.arange(len(ids)), length)
        within = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)
        return row, self._features[begin[row] + within]


def _make_room(cache: dict[int, Any], size: int) -> None:
    """Empty a cache that is about to hold more than it may."""
    if size > _MAX_KEPT:
        cache.clear()


def _slot(relation: int, side: Side) -> int:
    assert side != "relation", "a domain has entities"
    return 2 * relation + (side == "tail")


def _offsets(ascending: np.ndarray, num: int) -> np.ndarray:
    """Return where the run of each number below `num` begins in ascending numbers, and the end of the last."""
    return np.searchsorted(ascending, np.arange(num + 1))
