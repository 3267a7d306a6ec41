"""Bodies of rules → measures: a kernel walks the pairs of a body once and counts for every head.

F distinct facts, N entities, R relations.

A body is two relations one after the other. Beside relation r there is its inverse R + r, and 2R is the identity, which
follows a body of one relation. So a subrelation, an inverse and a composition are all counted by the same few lines.
"""

# Kernels carry no types: numba finds them out.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

_LOOK_UP = 8  # facts that are passed over in the time that one is looked up


class Facts(NamedTuple):
    """Distinct triples in the two orders that mining needs."""

    start: np.ndarray  # [2R + 2] where each relation starts in the next two
    head: np.ndarray  # [2F + N] by relation, head, tail; inverses and the identity too
    tail: np.ndarray  # [2F + N]
    entity_start: np.ndarray  # [N + 1] where each entity starts, as a head, in the next two
    out_tail: np.ndarray  # [F] by head, tail, relation
    out_relation: np.ndarray  # [F]
    by_tail: np.ndarray  # [R] whether a relation is more inverse-functional than functional

    @classmethod
    def of(cls, triples: np.ndarray, num_entities: int, num_relations: int) -> Facts:
        """Sort [F, 3] distinct triples."""
        head, relation, tail = triples.T
        out = np.lexsort((relation, tail, head))
        entities = np.arange(num_entities, dtype=head.dtype)
        relations = np.concatenate([relation, relation + num_relations, np.full_like(entities, 2 * num_relations)])
        heads, tails = np.concatenate([head, tail, entities]), np.concatenate([tail, head, entities])
        order = np.lexsort((tails, heads, relations))
        relations, heads, tails = relations[order], heads[order], tails[order]
        new = np.ones(len(heads), np.bool_)
        new[1:] = (heads[1:] != heads[:-1]) | (relations[1:] != relations[:-1])
        num_heads, num_tails = np.bincount(relations[new], minlength=2 * num_relations)[:-1].reshape(2, -1)
        return cls(
            *(np.searchsorted(relations, np.arange(2 * num_relations + 2)), heads, tails),
            *(np.searchsorted(head[out], np.arange(num_entities + 1)), tail[out], relation[out]),
            num_tails > num_heads,
        )


class Scratch(NamedTuple):
    """What one thread counts in. Between bodies all is zero but `seen` and the lists."""

    seen: np.ndarray  # [N] the number of the last x that reached an entity
    reached: np.ndarray  # [N] list of the z of one x
    from_x: np.ndarray  # [N] pairs of the body by x
    to_z: np.ndarray  # [N] pairs of the body by z
    all_z: np.ndarray  # [N] list of the z of the body
    begin: np.ndarray  # [N] where the facts of the second relation begin, by head
    end: np.ndarray  # [N]
    support: np.ndarray  # [R] pairs of the body that are facts, by relation
    heads: np.ndarray  # [R] list of the relations with support
    num: np.ndarray  # [3] how many x were numbered, z and heads listed

    @classmethod
    def of(cls, num_entities: int, num_relations: int) -> Scratch:
        """Zeros."""
        return cls(*(np.zeros(size, np.int64) for size in (*[num_entities] * 7, num_relations, num_relations, 3)))


class Least(NamedTuple):
    """The thresholds."""

    support: int
    head_coverage: float
    confidence: float
    pca_confidence: float


@numba.njit(nogil=True)
def _support(scratch, relation):
    if scratch.support[relation] == 0:
        scratch.heads[scratch.num[2]] = relation
        scratch.num[2] += 1
    scratch.support[relation] += 1


@numba.njit(nogil=True)
def _close(facts, scratch, x, num_reached):
    """Count which pairs of one x are facts: whichever list is shorter is looked up in the other."""
    first, last = facts.entity_start[x], facts.entity_start[x + 1]
    if last - first <= _LOOK_UP * num_reached:
        for i in range(first, last):
            if scratch.seen[facts.out_tail[i]] == scratch.num[0]:
                _support(scratch, facts.out_relation[i])
        return
    for k in range(num_reached):
        z = scratch.reached[k]
        i = first + np.searchsorted(facts.out_tail[first:last], z)
        while i < last and facts.out_tail[i] == z:
            _support(scratch, facts.out_relation[i])
            i += 1


@numba.njit(nogil=True)
def _walk(facts, scratch, one, two, most):
    """Count the distinct pairs of a body in all, by x, by z and by head; stop when there are more than `most`."""
    for i in range(facts.start[two + 1] - 1, facts.start[two] - 1, -1):
        y = facts.head[i]
        scratch.begin[y] = i
        if scratch.end[y] == 0:
            scratch.end[y] = i + 1
    total, i, last = 0, facts.start[one], facts.start[one + 1]
    while i < last and total <= most:
        x, num_reached = facts.head[i], 0
        scratch.num[0] += 1
        while i < last and facts.head[i] == x:
            y = facts.tail[i]
            for j in range(scratch.begin[y], scratch.end[y]):
                z = facts.tail[j]
                if scratch.seen[z] != scratch.num[0]:
                    scratch.seen[z] = scratch.num[0]
                    scratch.reached[num_reached] = z
                    num_reached += 1
                    if scratch.to_z[z] == 0:
                        scratch.all_z[scratch.num[1]] = z
                        scratch.num[1] += 1
                    scratch.to_z[z] += 1
            i += 1
        if num_reached:
            scratch.from_x[x] = num_reached
            total += num_reached
            _close(facts, scratch, x, num_reached)
    return total


@numba.njit(nogil=True)
def _clear(facts, scratch, one, two):
    for i in range(facts.start[one], facts.start[one + 1]):
        scratch.from_x[facts.head[i]] = 0
    for i in range(facts.start[two], facts.start[two + 1]):
        scratch.begin[facts.head[i]] = 0
        scratch.end[facts.head[i]] = 0
    for k in range(scratch.num[1]):
        scratch.to_z[scratch.all_z[k]] = 0
    for k in range(scratch.num[2]):
        scratch.support[scratch.heads[k]] = 0
    scratch.num[1:] = 0


@numba.njit(nogil=True)
def _pca_pairs(facts, scratch, head):
    """Pairs of the body whose x has a fact of the head relation; whose z has, where that determines more."""
    ends, counts = (head + len(facts.by_tail), scratch.to_z) if facts.by_tail[head] else (head, scratch.from_x)
    total, before = 0, -1
    for i in range(facts.start[ends], facts.start[ends + 1]):
        if facts.head[i] != before:
            before = facts.head[i]
            total += counts[before]
    return total


@numba.njit(nogil=True)
def _with_room(rows, num):
    """The same rows, in an array twice as long if it is full."""
    if num < len(rows):
        return rows
    longer = np.empty((2 * num, rows.shape[1]), rows.dtype)
    longer[:num] = rows
    return longer


@numba.njit(nogil=True, cache=True)
def measure(facts, scratch, least, bodies):
    """Every rule of [B, 2] bodies that reaches the thresholds: rows of one, two, head, support, body and PCA pairs."""
    sizes = facts.start[1:] - facts.start[:-1]
    most = np.inf if least.confidence == 0 else 1.000001 * sizes[:-1].max() / least.confidence  # no support reaches it
    rows, num = np.empty((64, 6), np.int64), 0
    for b in range(len(bodies)):
        one, two = bodies[b]
        total = _walk(facts, scratch, one, two, most)
        for k in range(scratch.num[2] if total <= most else 0):
            head = scratch.heads[k]
            support = scratch.support[head]
            if (
                support < least.support
                or support / sizes[head] < least.head_coverage
                or support / total < least.confidence
            ):
                continue
            num_pca = _pca_pairs(facts, scratch, head)
            if support / num_pca >= least.pca_confidence:
                rows = _with_room(rows, num)
                rows[num] = (one, two, head, support, total, num_pca)
                num += 1
        _clear(facts, scratch, one, two)
    return rows[:num]


@numba.njit(nogil=True, cache=True)
def joins(facts, least, start, stop):
    """Rows b1, b2, paths for each b1 in range(start, stop) and each b2 that enough paths go on with."""
    num_relations = len(facts.by_tail)
    paths = np.zeros(num_relations, np.int64)
    rows, num = np.empty((64, 3), np.int64), 0
    for one in range(start, stop):
        paths[:] = 0
        i, last = facts.start[num_relations + one], facts.start[num_relations + one + 1]
        while i < last:
            y, first = facts.head[i], i
            while i < last and facts.head[i] == y:
                i += 1
            for j in range(facts.entity_start[y], facts.entity_start[y + 1]):
                paths[facts.out_relation[j]] += i - first
        for two in range(num_relations):
            if paths[two] >= least.support:
                rows = _with_room(rows, num)
                rows[num] = (one, two, paths[two])
                num += 1
    return rows[:num]
