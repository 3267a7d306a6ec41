"""One list of triples → train, valid and test by seed; train has every entity and relation of the others."""

from __future__ import annotations

import numpy as np

from pairre.support.errors import GraphError

Splits = dict[str, np.ndarray]
DEFAULT_FRACTIONS = (0.90, 0.05, 0.05)


def split_triples(
    triples: np.ndarray,
    num_entities: int,
    num_relations: int,
    fractions: tuple[float, float, float] = DEFAULT_FRACTIONS,
    seed: int = 0,
) -> Splits:
    """Split [N, 3] distinct triples in time linear in N.

    In a random order, the first triple that brings an entity or a relation goes to train; of the others, the last ones
    go to valid and test. Where too few are free, valid and test are smaller than asked, in proportion.
    """
    adds_up = abs(sum(fractions) - 1) <= 1e-6  # false for a nan too
    if len(fractions) != 3 or not adds_up or min(fractions) < 0 or fractions[0] <= 0:
        shown = "/".join(f"{100 * f:g}" for f in fractions)
        raise GraphError(f"split {shown}: three shares train/valid/test that add up to 100, train above 0")
    order = np.random.default_rng(seed).permutation(len(triples))
    shuffled = triples[order]
    needed = np.zeros(len(triples), np.bool_)
    first = np.full(num_entities, len(triples))
    position = np.arange(len(triples))
    for column in (0, 2):
        # Written from the back, so that the earliest position of each entity is what remains.
        earliest = np.full(num_entities, len(triples))
        earliest[shuffled[::-1, column]] = position[::-1]
        np.minimum(first, earliest, out=first)
    needed[first[first < len(triples)]] = True
    first_relation = np.full(num_relations, len(triples))
    first_relation[shuffled[::-1, 1]] = position[::-1]
    needed[first_relation[first_relation < len(triples)]] = True

    free = np.flatnonzero(~needed)
    wanted = num_held_out(len(triples), fractions)
    if sum(wanted) > len(free):
        num_valid = len(free) * wanted[0] // max(sum(wanted), 1)
        wanted = [num_valid, len(free) - num_valid if wanted[1] else 0]
    num_held = sum(wanted)
    held = free[len(free) - num_held :]
    in_train = np.ones(len(triples), np.bool_)
    in_train[held] = False
    return {
        "train": shuffled[in_train],
        "valid": shuffled[held[: wanted[0]]],
        "test": shuffled[held[wanted[0] :]],
    }


def num_held_out(num_triples: int, fractions: tuple[float, float, float]) -> list[int]:
    """How many triples valid and test are to have."""
    return [round(f * num_triples) for f in fractions[1:]]


def distinct(triples: np.ndarray, num_entities: int, num_relations: int) -> np.ndarray:
    """The triples without repetitions, each at its first place."""
    if num_entities * num_relations * num_entities >= 2**63:
        order = np.lexsort(triples.T)  # stable, so the first of equal rows is the first in the list
        ordered = triples[order]
        new = np.ones(len(triples), np.bool_)
        new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        return triples if new.all() else triples[np.sort(order[new])]
    key = (triples[:, 0].astype(np.int64) * num_relations + triples[:, 1]) * num_entities + triples[:, 2]
    ordered = np.sort(key)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return triples
    # Few triples are repeated as a rule: only those are looked at again.
    place = np.searchsorted(repeated, key)
    rows = np.flatnonzero(repeated[np.minimum(place, len(repeated) - 1)] == key)
    _, first = np.unique(key[rows], return_index=True)
    kept = np.ones(len(triples), np.bool_)
    kept[np.delete(rows, first)] = False
    return triples[kept]
