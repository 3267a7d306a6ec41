"""Random splits of a list of triples into train, valid and test, and the removal of repeated triples."""

from __future__ import annotations

import numpy as np

from pairre.support.errors import GraphError

DEFAULT_FRACTIONS = (0.90, 0.05, 0.05)
SPLIT_NAMES = {  # of files in a folder, without their endings
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing"),
}


def check_fractions(fractions: tuple[float, ...]) -> None:
    """Raise a GraphError unless there are three fractions that add up to 1, that of train above 0."""
    sums_to_one = abs(sum(fractions) - 1) <= 1e-6  # False for a NaN too
    if len(fractions) != 3 or not sums_to_one or min(fractions) < 0 or fractions[0] <= 0:
        shown = "/".join(f"{100 * f:g}" for f in fractions)
        raise GraphError(f"split {shown}: three percentages train/valid/test that add up to 100, train above 0")


def split_triples(
    triples: np.ndarray,
    num_entities: int,
    num_relations: int,
    fractions: tuple[float, float, float] = DEFAULT_FRACTIONS,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return train, valid and test of [N, 3] distinct triples; train contains every entity and every relation."""
    rows = split_rows(triples, num_entities, num_relations, fractions, seed)
    return {split: triples[chosen] for split, chosen in rows.items()}


def split_rows(
    triples: np.ndarray,
    num_entities: int,
    num_relations: int,
    fractions: tuple[float, float, float] = DEFAULT_FRACTIONS,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return the positions of the triples of train, valid and test.

    In a random order, the first triple of each entity and of each relation goes to train; of the others, the last ones
    go to valid and test. If too few are left for the fractions, valid and test are smaller in proportion.
    """
    check_fractions(fractions)
    order = np.random.default_rng(seed).permutation(len(triples))
    free = np.flatnonzero(~_first_occurrences(triples[order], num_entities, num_relations))
    num_valid, num_test = num_held_out(len(triples), fractions)
    if num_valid + num_test > len(free):
        num_valid = len(free) * num_valid // (num_valid + num_test)
        num_test = len(free) - num_valid if num_test else 0
    held_out = free[len(free) - num_valid - num_test :]
    in_train = np.ones(len(triples), np.bool_)
    in_train[held_out] = False
    return {
        "train": order[in_train],
        "valid": order[held_out[:num_valid]],
        "test": order[held_out[num_valid:]],
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


def distinct_weighted(triples: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the triples without repetitions, as `distinct` does, each with the largest of its weights."""
    order = np.lexsort(triples.T)  # stable, so that the first of equal rows is the first occurrence
    ordered = triples[order]
    starts = np.flatnonzero(np.r_[True, (ordered[1:] != ordered[:-1]).any(axis=1)])
    largest = np.empty_like(weights)
    largest[order[starts]] = np.maximum.reduceat(weights[order], starts)
    kept = np.sort(order[starts])
    return triples[kept], largest[kept]
