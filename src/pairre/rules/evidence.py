"""Kernels that find the answers of rules that name entities, with their evidence (`entity_rules.py`).

A thread keeps what the slots of a relation conclude, so that queries of one relation cost less together. What is found
does not depend on it.

No query looks at more than a bounded number of facts: of those with a large slot, and of the slots of an entity with
many facts, evenly spread ones are looked at, always the same.

N entities, S slots, B queries, K answers of each.
"""

# numba infers the types of kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from pairre.support.compiled import compiled

PRIOR = 5  # entities for which each rule is wrong, that are counted beside those of its body
SUPPORT = 2  # entities that each rule must be right for
_LEAST = 0.005  # confidence that a rule must have to count
MAX_FACTS = 1 << 10  # of an entity, whose slots are looked at
_MAX_VISITS = 1 << 13  # facts that are looked at for the conclusions of one slot
_MAX_QUERY = 1 << 20  # facts that are looked at for the slots of a query's entity
_MAX_SHARED = 1 << 17  # facts of known answers that are looked at for the slots that they share
_MAX_SHARING = 1 << 21  # entities that have the slots that they share, of all slots
_LEVELS = 8  # of confidence, each from one bound to twice as much
_MEMO = 1 << 20  # conclusions of slots that a thread keeps for the next query of the relation
_GOLDEN = 0.6180339887498949


class Scratch(NamedTuple):
    """What one thread writes to. Between two queries all counters and confidences are zero."""

    votes: np.ndarray  # [N] of those that have a slot
    touched: np.ndarray  # [N] list of those that have some
    best: np.ndarray  # [N, 3] the largest confidences
    answers: np.ndarray  # [N] list of those that have one
    shared: np.ndarray  # [S] known answers that have a slot
    slots: np.ndarray  # [S] list of those that are counted
    first: np.ndarray  # [S] where the conclusions of a slot begin, −1 if they are not there
    stop: np.ndarray  # [S]
    cost: np.ndarray  # [S] facts that were looked at for them
    kept: np.ndarray  # [S] list of the slots whose conclusions are there
    entity: np.ndarray  # [·] conclusions of slots, one slot after another
    confidence: np.ndarray  # [·]
    num: np.ndarray  # [3] answers listed, conclusions, slots whose conclusions are there
    relation: np.ndarray  # [1] that conclusions are of

    @classmethod
    def empty(cls, num_entities: int, num_slots: int) -> Scratch:
        """Return counters that are all zero."""
        size = max(_MEMO, num_entities)  # what one slot concludes always fits
        of_entities, of_slots = np.zeros((3, num_entities), np.int32), np.zeros((4, num_slots), np.int32)
        best, ranges = np.zeros((num_entities, 3), np.float32), np.full((2, num_slots), -1, np.int32)
        return cls(
            *(of_entities[0], of_entities[1], best, of_entities[2]),
            *(of_slots[0], of_slots[1], ranges[0], ranges[1], of_slots[2], of_slots[3]),
            *(np.empty(size, np.int32), np.empty(size, np.float32)),
            *(np.zeros(3, np.int64), np.full(1, -1, np.int64)),
        )


@numba.njit(nogil=True)
def having(slots, slot):
    """Return the entities that have a slot."""
    num = len(slots.group)
    if slot < num:
        group = slots.group[slot]
        return slots.other[slots.group_start[group] : slots.group_start[group + 1]]
    return slots.domain[slots.domain_start[slot - num] : slots.domain_start[slot - num + 1]]


@numba.njit(nogil=True)
def facts_of(slots, entity, relation):
    """Return the range of an entity's facts of a relation."""
    low, high = slots.entity_start[entity], slots.entity_start[entity + 1]
    end = high
    while low < high:
        middle = (low + high) // 2
        if slots.relation[middle] < relation:
            low = middle + 1
        else:
            high = middle
    if low == end or slots.relation[low] != relation:
        return 0, 0
    return slots.group_start[low], slots.group_start[low + 1]


@numba.njit(nogil=True)
def _stride(num):
    """Return a step that visits every one of `num` in a circle once, of which those visited first are evenly spread."""
    if num <= PRIOR:
        return 1
    step = np.int64(num * _GOLDEN)
    while True:
        a, b = num, step
        while b:
            a, b = b, a % b
        if a == 1:
            return step
        step += 1


@numba.njit(nogil=True)
def _add(scratch, entity, confidence):
    """Keep the confidence of one more rule for an answer if it is among the three largest."""
    best = scratch.best
    if confidence <= best[entity, 2]:
        return
    if best[entity, 0] == 0:
        scratch.answers[scratch.num[0]] = entity
        scratch.num[0] += 1
    if confidence > best[entity, 0]:
        best[entity, 2], best[entity, 1], best[entity, 0] = best[entity, 1], best[entity, 0], confidence
    elif confidence > best[entity, 1]:
        best[entity, 2], best[entity, 1] = best[entity, 1], confidence
    else:
        best[entity, 2] = confidence


@numba.njit(nogil=True)
def _forget(scratch):
    """Drop the conclusions of all slots."""
    for i in range(scratch.num[2]):
        scratch.first[scratch.kept[i]] = -1
    scratch.num[1:] = 0


@numba.njit(nogil=True)
def _conclude(slots, scratch, slot):
    """Find the conclusions of a slot: the answers of those that have it, and how confident each is."""
    members = having(slots, slot)
    num, step = len(members), _stride(len(members))
    seen, visited, num_touched, place = 0, 0, 0, 0
    while seen < num and visited < _MAX_VISITS:
        first, stop = facts_of(slots, members[place], scratch.relation[0])
        stop = min(stop, first + MAX_FACTS)  # of more answers, those with the smallest ids count
        for i in range(first, stop):
            entity = slots.other[i]
            if scratch.votes[entity] == 0:
                scratch.touched[num_touched] = entity
                num_touched += 1
            scratch.votes[entity] += 1
        seen += 1
        visited += 1 + stop - first
        place = (place + step) % num
    if scratch.num[1] + num_touched > len(scratch.entity):
        _forget(scratch)
    at = scratch.num[1]
    scratch.first[slot] = at
    for i in range(num_touched):
        entity = scratch.touched[i]
        confidence = scratch.votes[entity] / (seen + PRIOR)
        if scratch.votes[entity] >= SUPPORT and confidence >= _LEAST:
            scratch.entity[at] = entity
            scratch.confidence[at] = confidence
            at += 1
        scratch.votes[entity] = 0
    scratch.stop[slot], scratch.cost[slot] = at, visited
    scratch.kept[scratch.num[2]] = slot
    scratch.num[1] = at
    scratch.num[2] += 1


@numba.njit(nogil=True)
def _from_slot(slots, scratch, slot):
    """Add the conclusions of a slot that the query's entity has; return how many facts they took."""
    if scratch.first[slot] < 0:
        _conclude(slots, scratch, slot)
    for i in range(scratch.first[slot], scratch.stop[slot]):
        _add(scratch, scratch.entity[i], scratch.confidence[i])
    return scratch.cost[slot]


@numba.njit(nogil=True)
def _from_entity(slots, scratch, x):
    """Add what the slots of the query's entity conclude."""
    low, high = slots.entity_start[x], slots.entity_start[x + 1]
    cost = 0
    for group in range(low, high):
        if cost < _MAX_QUERY:
            cost += _from_slot(slots, scratch, len(slots.group) + slots.relation[group])
    first, num = slots.group_start[low], slots.group_start[high] - slots.group_start[low]
    step, place = _stride(num), 0
    for _ in range(min(num, MAX_FACTS)):
        slot = slots.slot[first + place]
        if slot >= 0 and cost < _MAX_QUERY:
            cost += _from_slot(slots, scratch, slot)
        place = (place + step) % num


@numba.njit(nogil=True)
def _count(scratch, slot, num_slots):
    """Count a slot of a known answer; return how many slots are listed then."""
    if scratch.shared[slot] == 0:
        scratch.slots[num_slots] = slot
        num_slots += 1
    scratch.shared[slot] += 1
    return num_slots


@numba.njit(nogil=True)
def _count_slots(slots, scratch, entity, num_slots):
    """Count all slots of a known answer; return how many slots are listed then, and how many were looked at."""
    low, high = slots.entity_start[entity], slots.entity_start[entity + 1]
    first, num = slots.group_start[low], slots.group_start[high] - slots.group_start[low]
    for group in range(low, high):
        num_slots = _count(scratch, len(slots.group) + slots.relation[group], num_slots)
    step, place, num_facts = _stride(num), 0, min(num, MAX_FACTS)
    for _ in range(num_facts):
        slot = slots.slot[first + place]
        place = (place + step) % num
        if slot >= 0:
            num_slots = _count(scratch, slot, num_slots)
    return num_slots, num_facts + high - low


@numba.njit(nogil=True)
def _shared_confidence(slots, scratch, slot, goal, scale):
    """Return how confident it is that who has a slot is an answer; 0 if the slot is the one of answers, at `goal`."""
    support = scratch.shared[slot]
    if support < SUPPORT or (slot < len(slots.group) and slots.group_start[slots.group[slot]] == goal):
        return np.float32(0)
    num = len(having(slots, slot))
    return np.float32(min(support * scale, num) / (num + PRIOR))


@numba.njit(nogil=True)
def _from_answers(slots, scratch, x, relation):
    """Add what the slots of known answers conclude of the entities that have them, too."""
    begin, end = facts_of(slots, x, relation)
    num = end - begin
    if num < SUPPORT:
        return
    step, place, seen, visited, num_slots = _stride(num), 0, 0, 0, 0
    while seen < num and visited < _MAX_SHARED:
        num_slots, looked_at = _count_slots(slots, scratch, slots.other[begin + place], num_slots)
        seen += 1
        visited += looked_at
        place = (place + step) % num
    # If members are too many in all, slots count whose confidence is twice, four, … times as large.
    sizes, least = np.zeros(_LEVELS, np.int64), _LEAST
    for i in range(num_slots):
        slot = scratch.slots[i]
        confidence = _shared_confidence(slots, scratch, slot, begin, num / seen)
        if confidence >= least:
            level = int(np.log2(confidence / least))
            sizes[min(_LEVELS - 1, level)] += len(having(slots, slot))
    total = sizes.sum()
    for level in range(_LEVELS - 1):
        if total > _MAX_SHARING:
            total -= sizes[level]
            least *= 2
    for i in range(num_slots):
        slot = scratch.slots[i]
        confidence = _shared_confidence(slots, scratch, slot, begin, num / seen)
        scratch.shared[slot] = 0
        if confidence >= least:
            members = having(slots, slot)
            for j in range(len(members)):
                _add(scratch, members[j], confidence)


@numba.njit(nogil=True)
def _smallest(values, num, place):
    """Return the number at a place of the first `num` in ascending order; they change places."""
    low, high = 0, num - 1
    while low < high:
        middle, i, j = values[(low + high) // 2], low, high
        while i <= j:
            while values[i] < middle:
                i += 1
            while values[j] > middle:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        if j < place < i:
            break
        if place <= j:
            high = j
        else:
            low = i
    return values[place]


@numba.njit(nogil=True)
def _last_of_best(scratch, doubt, other, most):
    """Return the doubt and the id of the last of the best answers, of which there are `most`."""
    num, num_tied, num_better = scratch.num[0], 0, 0
    other[:num] = doubt[:num]
    last = _smallest(other, num, most - 1)
    for i in range(num):
        num_better += doubt[i] < last
        if doubt[i] == last:
            other[num_tied] = scratch.answers[i]
            num_tied += 1
    return last, _smallest(other, num_tied, most - num_better - 1)


@numba.njit(nogil=True)
def _take_best(scratch, doubt, other, entity, score):
    """Move the best answers into a row each of entities and scores; return how many there are. Ties go by id."""
    num, at = scratch.num[0], 0
    for i in range(num):
        best = scratch.best[scratch.answers[i]]
        doubt[i] = (1 - np.float64(best[0])) * (1 - np.float64(best[1])) * (1 - np.float64(best[2]))
        best[:] = 0
    last, last_id = _last_of_best(scratch, doubt, other, len(entity)) if num > len(entity) else (2.0, 0.0)
    for i in range(num):
        if doubt[i] < last or (doubt[i] == last and scratch.answers[i] <= last_id):
            entity[at] = scratch.answers[i]
            score[at] = np.sqrt(-np.log(doubt[i]))
            at += 1
    scratch.num[0] = 0
    return at


@compiled(nogil=True)
def answer(slots, scratch, anchors, relations, entity, score, num, start, stop):
    """Write the best answers to the queries from `start` to `stop`; those of one relation should be together."""
    doubt, other = np.empty(len(scratch.votes)), np.empty(len(scratch.votes))
    for i in range(start, stop):
        if relations[i] != scratch.relation[0]:
            _forget(scratch)
            scratch.relation[0] = relations[i]
        _from_entity(slots, scratch, anchors[i])
        _from_answers(slots, scratch, anchors[i], relations[i])
        num[i] = _take_best(scratch, doubt, other, entity[i], score[i])
