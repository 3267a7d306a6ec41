"""The entities that make sense on a side of a relation: those that train shows there, and unseen ones like them.

A slot is a side of a relation. What an entity fills (slots, and types if the graph has them) says what kind of thing it
is. How often a new triple shows a new entity in a slot is estimated from the members that train shows there once (Good
and Turing). Each of these, taken for unseen, also shows how similar an unseen member may be to the others. That gives
the similarity from which an unseen entity is plausible: the one that loses a given share of true answers.

E entities, S slots, F features: the slots, then the types. What is asked of one slot costs what its members have to do
with, not E nor F, so that a graph may have as many relations as it likes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

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
T = TypeVar("T")
_SLACK = 1e-9  # for sums of the same numbers in another order


@dataclass(frozen=True, eq=False)
class _Profile:
    """What the members of a slot have in common, and how similar to it an unseen entity must be."""

    features: np.ndarray  # of any member, ascending
    weights: np.ndarray  # the number of members with each of them, times its weight; 0 for the slot itself
    threshold: float | None  # None if no unseen entity is plausible, −∞ if every one is


class Domains:
    """The domain and the range of every relation of a graph; each is computed when it is asked for."""

    def __init__(self, graph: Graph, max_loss: float = MAX_LOSS) -> None:
        self._num_entities, self._max_loss = graph.num_entities, max_loss
        triples = distinct(graph.train.numpy(), graph.num_entities, graph.num_relations).astype(np.int64)
        head, relation, tail = triples.T
        self._loops = np.bincount(relation[head == tail], minlength=graph.num_relations) > 0
        keys = np.concatenate([2 * relation, 2 * relation + 1]) * graph.num_entities + np.concatenate([head, tail])
        keys, self._counts = np.unique(keys, return_counts=True)
        slots, members = np.divmod(keys, graph.num_entities)
        if (pairs := graph.entity_types) is None:
            self._members, features = members, slots
        else:
            order = np.argsort(pairs.types.numpy(), kind="stable")
            self._members = np.r_[members, pairs.entities.numpy()[order]]
            features = np.r_[slots, 2 * graph.num_relations + pairs.types.numpy()[order]]
        frequency = np.bincount(features, minlength=2 * graph.num_relations)
        self._first_member = _offsets(features, len(frequency))
        order = np.argsort(self._members, kind="stable")
        self._features = features[order]
        self._first_feature = _offsets(self._members[order], graph.num_entities)
        # A feature of few entities says more about what an entity is than a feature of many.
        self._weight = np.log(graph.num_entities / np.maximum(frequency, 1))  # [F]
        self._total = np.bincount(self._members, self._weight[features], graph.num_entities)  # [E]
        self._all = torch.arange(graph.num_entities)
        self._untold = np.flatnonzero(self._total <= _SLACK)  # entities that nothing is known of
        self._profiles, self._plausible = _Cache[_Profile](), _Cache[Tensor]()

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
        found = self._plausible.found.get(slot)  # another thread may empty the cache
        if found is None:
            profile, ids = self._profile(slot), self._slot_members(slot)
            if profile.threshold is not None and profile.threshold <= _SLACK:  # no entity is less similar than 0
                return self._all
            if profile.threshold is not None:
                related = self._related(profile)
                chunks = np.split(related, range(_CHUNK, len(related), _CHUNK))
                ids = np.concatenate([chunk[self._allowed(slot, chunk)] for chunk in chunks])
            found = self._plausible.add(slot, torch.from_numpy(ids), len(ids))
        return found

    def allows(self, relation: int, side: Side, entities: Tensor) -> Tensor:
        """Return which of some entities are plausible on a side of a relation, without looking at all the others."""
        return torch.from_numpy(self._allowed(_slot(relation, side), entities.cpu().numpy()))

    def _slot_members(self, slot: int) -> np.ndarray:
        return self._members[self._first_member[slot] : self._first_member[slot + 1]]

    def _related(self, profile: _Profile) -> np.ndarray:
        """Return the entities whose similarity to a profile is not 0, and maybe others; ascending."""
        num = self._first_member[profile.features + 1] - self._first_member[profile.features]
        if num.sum() >= self._num_entities:
            return self._all.numpy()
        _, alike = _runs(self._first_member, self._members, profile.features)
        return np.unique(np.concatenate([self._untold, alike]))

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
        similarity = self._similarity(profile, ids, np.where(observed, self._weight[slot], 0))
        return np.asarray(observed | (similarity >= profile.threshold - _SLACK))

    def _profile(self, slot: int) -> _Profile:
        """Return the profile of a slot, with a threshold by which at most `max_loss` of true answers are left out."""
        found = self._profiles.found.get(slot)
        if found is None:
            members = self._slot_members(slot)
            features, frequency = _counted(_runs(self._first_feature, self._features, members)[1], len(self._weight))
            weights = np.where(features == slot, 0, frequency * self._weight[features])
            counts = self._counts[self._first_member[slot] : self._first_member[slot + 1]]
            once = members[counts == 1]
            found = _Profile(features, weights, None if len(members) else -np.inf)
            # A member that is taken for unseen is compared with the others: it does not count itself.
            similarity = np.sort(self._similarity(found, once, self._weight[slot], itself=1))
            num_lost = int(self._max_loss * counts.sum())
            if num_lost < len(once):
                found = _Profile(features, weights, float(similarity[num_lost]))
            self._profiles.add(slot, found, 2 * len(features))
        return found

    def _similarity(self, profile: _Profile, ids: np.ndarray, own: np.ndarray | float, itself: int = 0) -> np.ndarray:
        """Return the cosine of entities to a profile, up to a factor of the profile; without features it is infinite.

        `own` is the weight of the profile's slot where an entity fills it, which must not count. With `itself`, an
        entity is one of those that the profile was made of, and is taken out of it.
        """
        row, features = _runs(self._first_feature, self._features, ids)
        total = self._total[ids] - own
        dot = np.bincount(row, self._weights_of(profile, features), len(ids)) - itself * total
        known = total > _SLACK
        return np.where(known, dot / np.sqrt(np.where(known, total, 1)), np.inf)

    def _weights_of(self, profile: _Profile, features: np.ndarray) -> np.ndarray:
        """Return the weights of features in a profile: 0 for those that it lacks."""
        if len(features) < len(self._weight) and len(profile.features):
            place = np.searchsorted(profile.features, features).clip(max=len(profile.features) - 1)
            return np.asarray(np.where(profile.features[place] == features, profile.weights[place], 0))
        weights = np.zeros(len(self._weight))
        weights[profile.features] = profile.weights
        return np.asarray(weights[features])


class _Cache(Generic[T]):
    """What was computed for slots; it is emptied before it holds more numbers than it may."""

    def __init__(self) -> None:
        self.found, self.size = dict[int, T](), 0

    def add(self, slot: int, value: T, size: int) -> T:
        """Keep a value that consists of so many numbers, and return it."""
        if self.size + size > _MAX_KEPT:
            self.found.clear()
            self.size = 0
        self.found[slot] = value
        self.size += size
        return value


def _runs(first: np.ndarray, values: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of some runs, the i-th of which begins at `first[i]`, flat: (position in `of`, value)."""
    begin, length = first[of], first[of + 1] - first[of]
    row = np.repeat(np.arange(len(of)), length)
    within = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)
    return row, values[begin[row] + within]


def _counted(features: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the features that occur, ascending, and how often each does."""
    if len(features) < num:
        return np.unique(features, return_counts=True)
    counts = np.bincount(features, minlength=num)
    found = np.flatnonzero(counts)
    return found, counts[found]


def _slot(relation: int, side: Side) -> int:
    assert side != "relation", "a domain has entities"
    return 2 * relation + (side == "tail")


def _offsets(ascending: np.ndarray, num: int) -> np.ndarray:
    """Return where the run of each number below `num` begins in ascending numbers, and the end of the last."""
    return np.searchsorted(ascending, np.arange(num + 1))
