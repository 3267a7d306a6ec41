"""One list of triples → train, valid and test by seed, so that train has seen every entity and relation of the others."""

from __future__ import annotations

import numpy as np

from pairre.errors import GraphError

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
    if len(fractions) != 3 or min(fractions) < 0 or fractions[0] <= 0 or abs(sum(fractions) - 1) > 1e-6:
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
    wanted = [round(f * len(triples)) for f in fractions[1:]]
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


def distinct(triples: np.ndarray, num_entities: int, num_relations: int) -> np.ndarray:
    """The triples without repetitions, each at its first place."""
    if num_entities * num_relations * num_entities >= 2**63:
        _, first = np.unique(triples, axis=0, return_index=True)
    else:
        key = (triples[:, 0].astype(np.int64) * num_relations + triples[:, 1]) * num_entities + triples[:, 2]
        if len(np.unique(key)) == len(key):
            return triples
        _, first = np.unique(key, return_index=True)
    return triples[np.sort(first)]
