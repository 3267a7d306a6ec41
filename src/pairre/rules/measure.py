"""The measures of rules: a kernel enumerates the entity pairs of a body once and counts for every conclusion.

F distinct facts, N entities, R relations, B bodies.

A body is a path x → y → z of two relations. Relation R + r is the inverse of relation r, and 2R is the identity, which
is the second relation of a body of one relation. So the same kernel counts subrelations, inverses and compositions.
"""

# numba infers the types of kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from pairre.support.compiled import compiled

_SEARCH_COST = 8  # facts that can be scanned in the time of one binary search


class Facts(NamedTuple):
    """Distinct triples, sorted in the two orders that mining needs."""

    start: np.ndarray  # [2R + 2] offset of each relation in the next two
    head: np.ndarray  # [2F + N] sorted by relation, head, tail; with inverses and the identity
    tail: np.ndarray  # [2F + N]
    entity_start: np.ndarray  # [N + 1] offset of each entity, as a head, in the next two
    out_tail: np.ndarray  # [F] sorted by head, tail, relation
    out_relation: np.ndarray  # [F]
    pca_by_tail: np.ndarray  # [R] whether a relation is more inverse-functional than functional

    @classmethod
    def build(cls, triples: np.ndarray, num_entities: int, num_relations: int) -> Facts:
        """Return [F, 3] distinct triples in both orders."""
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
    """The counters of one thread. Between two bodies all are zero except `seen` and the lists."""

    seen: np.ndarray  # [N] the serial number of the last x from which an entity was reached
    reached: np.ndarray  # [N] list of the z that one x reaches
    from_x: np.ndarray  # [N] number of pairs of the body by x
    to_z: np.ndarray  # [N] number of pairs of the body by z
    all_z: np.ndarray  # [N] list of all z of the body
    begin: np.ndarray  # [N] offset of the first fact of the second relation by head
    end: np.ndarray  # [N] offset after the last one
    support: np.ndarray  # [R] number of pairs of the body that are facts, by relation
    conclusions: np.ndarray  # [R] list of the relations with support
    num: np.ndarray  # [3] x numbered, z listed, conclusions listed

    @classmethod
    def zeros(cls, num_entities: int, num_relations: int) -> Scratch:
        """Return counters that are all zero."""
        return cls(*(np.zeros(size, np.int64) for size in (*[num_entities] * 7, num_relations, num_relations, 3)))


class Thresholds(NamedTuple):
    """The smallest values that the measures of a rule may have."""

    support: int
    head_coverage: float
    confidence: float
    pca_confidence: float


@numba.njit(nogil=True)
def _add_support(scratch, relation):
    """Count one more fact of a relation."""
    if scratch.support[relation] == 0:
        scratch.conclusions[scratch.num[2]] = relation
        scratch.num[2] += 1
    scratch.support[relation] += 1


@numba.njit(nogil=True)
def _count_facts(facts, scratch, x, num_reached):
    """Count the pairs of one x that are facts; the shorter list is searched for in the longer one."""
    first, last = facts.entity_start[x], facts.entity_start[x + 1]
    if last - first <= _SEARCH_COST * num_reached:
        for i in range(first, last):
            if scratch.seen[facts.out_tail[i]] == scratch.num[0]:
                _add_support(scratch, facts.out_relation[i])
        return
    for k in range(num_reached):
        z = scratch.reached[k]
        i = first + np.searchsorted(facts.out_tail[first:last], z)
        while i < last and facts.out_tail[i] == z:
            _add_support(scratch, facts.out_relation[i])
            i += 1


@numba.njit(nogil=True)
def _count_pairs(facts, scratch, one, two, most):
    """Return the number of distinct pairs of a body, counted by x, z and conclusion; stop if it exceeds `most`."""
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
            _count_facts(facts, scratch, x, num_reached)
    return total


@numba.njit(nogil=True)
def _clear(facts, scratch, one, two):
    """Set the counters of a body back to zero."""
    for i in range(facts.start[one], facts.start[one + 1]):
        scratch.from_x[facts.head[i]] = 0
    for i in range(facts.start[two], facts.start[two + 1]):
        scratch.begin[facts.head[i]] = 0
        scratch.end[facts.head[i]] = 0
    for k in range(scratch.num[1]):
        scratch.to_z[scratch.all_z[k]] = 0
    for k in range(scratch.num[2]):
        scratch.support[scratch.conclusions[k]] = 0
    scratch.num[1:] = 0


@numba.njit(nogil=True)
def _pca_pairs(facts, scratch, conclusion):
    """Return the number of pairs of the body whose x, or z if `pca_by_tail`, has a fact of the conclusion."""
    if facts.pca_by_tail[conclusion]:
        relation, counts = conclusion + len(facts.pca_by_tail), scratch.to_z
    else:
        relation, counts = conclusion, scratch.from_x
    total, previous = 0, -1
    for i in range(facts.start[relation], facts.start[relation + 1]):
        if facts.head[i] != previous:
            previous = facts.head[i]
            total += counts[previous]
    return total


@numba.njit(nogil=True)
def _grown(rows, num):
    """Return the rows in an array twice as long if `num` rows fill it."""
    if num < len(rows):
        return rows
    longer = np.empty((2 * num, rows.shape[1]), rows.dtype)
    longer[:num] = rows
    return longer


@compiled(nogil=True)
def measure(facts, scratch, thresholds, bodies):
    """Return every rule of [B, 2] bodies that reaches the thresholds.

    The columns of a row are: first and second relation of the body, conclusion, support, pairs of the body, PCA pairs.
    """
    sizes = facts.start[1:] - facts.start[:-1]
    # No conclusion has more facts than the largest relation, so a body with more pairs cannot be confident enough.
    most = np.inf if thresholds.confidence == 0 else 1.000001 * sizes[:-1].max() / thresholds.confidence
    rows, num = np.empty((64, 6), np.int64), 0
    for b in range(len(bodies)):
        one, two = bodies[b]
        total = _count_pairs(facts, scratch, one, two, most)
        for k in range(scratch.num[2] if total <= most else 0):
            conclusion = scratch.conclusions[k]
            support = scratch.support[conclusion]
            if (
                support < thresholds.support
                or support / sizes[conclusion] < thresholds.head_coverage
                or support / total < thresholds.confidence
            ):
                continue
            num_pca = _pca_pairs(facts, scratch, conclusion)
            if support / num_pca >= thresholds.pca_confidence:
                rows = _grown(rows, num)
                rows[num] = (one, two, conclusion, support, total, num_pca)
                num += 1
        _clear(facts, scratch, one, two)
    return rows[:num]


@compiled(nogil=True)
def find_paths(facts, thresholds, start, stop):
    """Return rows of first relation, second relation and number of paths, for compositions with enough paths.

    The first relation is in range(start, stop). Without as many paths as the least support, there is no rule.
    """
    num_relations = len(facts.pca_by_tail)
    paths, reached = np.zeros(num_relations, np.int64), np.empty(num_relations, np.int64)
    rows, num = np.empty((64, 3), np.int64), 0
    for one in range(start, stop):
        num_reached = 0
        i, last = facts.start[num_relations + one], facts.start[num_relations + one + 1]
        while i < last:
            y, first = facts.head[i], i
            while i < last and facts.head[i] == y:
                i += 1
            for j in range(facts.entity_start[y], facts.entity_start[y + 1]):
                two = facts.out_relation[j]
                if paths[two] == 0:
                    reached[num_reached] = two
                    num_reached += 1
                paths[two] += i - first
        for k in range(num_reached):  # not over all relations, of which there may be a hundred thousand
            two = reached[k]
            if paths[two] >= thresholds.support:
                rows = _grown(rows, num)
                rows[num] = (one, two, paths[two])
                num += 1
            paths[two] = 0
    return rows[:num]
