"""Random splits of a list of triples into train, valid and test, and the removal of repeated triples."""

from __future__ import annotations

import numpy as np

from pairre.support.errors import GraphError

DEFAULT_FRACTIONS = (0.90, 0.05, 0.05)


def split_triples(
    triples: np.ndarray,
    num_entities: int,
    num_relations: int,
    fractions: tuple[float, float, float] = DEFAULT_FRACTIONS,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return train, valid and test of [N, 3] distinct triples; train contains every entity and every relation.

    In a random order, the first triple of each entity and of each relation goes to train; of the others, the last ones
    go to valid and test. If too few are left for the fractions, valid and test are smaller in proportion.
    """
    sums_to_one = abs(sum(fractions) - 1) <= 1e-6  # False for a NaN too
    if len(fractions) != 3 or not sums_to_one or min(fractions) < 0 or fractions[0] <= 0:
        shown = "/".join(f"{100 * f:g}" for f in fractions)
        raise GraphError(f"split {shown}: three shares train/valid/test that add up to 100, train above 0")
    order = np.random.default_rng(seed).permutation(len(triples))
    shuffled = triples[order]
    free = np.flatnonzero(~_first_occurrences(shuffled, num_entities, num_relations))
    num_valid, num_test = num_held_out(len(triples), fractions)
    if num_valid + num_test > len(free):
        num_valid = len(free) * num_valid // (num_valid + num_test)
        num_test = len(free) - num_valid if num_test else 0
    held_out = free[len(free) - num_valid - num_test :]
    in_train = np.ones(len(triples), np.bool_)
    in_train[held_out] = False
    return {
        "train": shuffled[in_train],
        "valid": shuffled[held_out[:num_valid]],
        "test": shuffled[held_out[num_valid:]],
    }


def _first_occurrences(triples: np.ndarray, num_entities: int, num_relations: int) -> np.ndarray:
    """Return which triples, bool [N], are the first of their head or tail or of their relation."""
    num = len(triples)
    position = np.arange(num)
    first_entity, first_relation = np.full(num_entities, num), np.full(num_relations, num)
    for column in (0, 2):
        # Assigned from the end, so that the earliest position of each entity is the one that remains.
        earliest = np.full(num_entities, num)
        earliest[triples[::-1, column]] = position[::-1]
        np.minimum(first_entity, earliest, out=first_entity)
    first_relation[triples[::-1, 1]] = position[::-1]
    result = np.zeros(num, np.bool_)
    for first in (first_entity, first_relation):
        result[first[first < num]] = True
    return result


def num_held_out(num_triples: int, fractions: tuple[float, float, float]) -> list[int]:
    """Return how many triples the fractions ask valid and test to have."""
    return [round(f * num_triples) for f in fractions[1:]]


def distinct(triples: np.ndarray, num_entities: int, num_relations: int) -> np.ndarray:
    """Return the triples without repetitions, in the order of their first occurrences."""
    if num_entities * num_relations * num_entities >= 2**63:
        order = np.lexsort(triples.T)  # stable, so that the first of equal rows is the first occurrence
        ordered = triples[order]
        new = np.ones(len(triples), np.bool_)
        new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        return triples if new.all() else triples[np.sort(order[new])]
    key = (triples[:, 0].astype(np.int64) * num_relations + triples[:, 1]) * num_entities + triples[:, 2]
    ordered = np.sort(key)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return triples
    # Usually few triples are repeated, and only those are examined further.
    position = np.searchsorted(repeated, key)
    rows = np.flatnonzero(repeated[np.minimum(position, len(repeated) - 1)] == key)
    _, first = np.unique(key[rows], return_index=True)
    kept = np.ones(len(triples), np.bool_)
    kept[np.delete(rows, first)] = False
    return triples[kept]
