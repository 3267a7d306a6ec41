"""Hold triples out at random, as `split_rows` does, without an order of all triples in memory.

The random order is a function of seed and position. The first pass over the triples writes the place of each in that
order to a file, and finds which triples are the first of an entity or a relation, and so stay in train. The next ones
find from which place on the others are held out.

N triples, E entities, R relations.
"""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairre.graph.split import num_held_out
from pairre.graph.stored.arrays import ArrayWriter, read_pieces
from pairre.support.compiled import compiled
from pairre.support.random_streams import grid, key, permuted

_BLOCKS = 1 << 16  # of the random order, that free triples are counted in
Read = Callable[[], Iterable[np.ndarray]]  # yields all triples, some at a time, whenever it is called


@compiled(nogil=True)
def _find_places(triples, begin, stream, size, rows, columns, places, entity, relation):
    """Write the place of each triple, and lower that of the first triple of each entity and of each relation."""
    for i in range(len(triples)):
        place = permuted(stream, begin + i, size, rows, columns)
        head, kind, tail = triples[i]
        places[i] = place
        entity[head], entity[tail] = min(entity[head], place), min(entity[tail], place)
        relation[kind] = min(relation[kind], place)


@compiled(nogil=True)
def _mark_first(triples, places, entity, relation, free):
    """Write the places of free triples, and −1 for one that is the first of an entity or of its relation."""
    for i in range(len(triples)):
        place, (head, kind, tail) = places[i], triples[i]
        is_first = entity[head] == place or entity[tail] == place or relation[kind] == place
        free[i] = -1 if is_first else place


@dataclass(frozen=True)
class HoldOut:
    """Which triples are held out: free ones whose place is not before these."""

    valid_from: int
    test_from: int

    def splits(self, places: np.ndarray) -> np.ndarray:
        """Return the splits of triples by their free places, as positions in `SPLIT_NAMES`; int8 [n]."""
        return (places >= self.valid_from).astype(np.int8) + (places >= self.test_from)


class RandomOrder:
    """The random order of N distinct triples, and which of them are free to be held out."""

    def __init__(self, file: Path, read: Read, rows: int, sizes: tuple[int, int, int], seed: int) -> None:
        """Write the order to a file; `read` yields triples by `rows`, and `sizes` are N, E and R."""
        self._file, self._read, self._rows = file, read, rows
        self._num, num_entities, num_relations = sizes
        self._entity, self._relation = (np.full(size, self._num) for size in (num_entities, num_relations))
        with ArrayWriter(file, np.int64) as writer:
            for triples in read():
                places = np.empty(len(triples), np.int64)
                order = writer.length, key(seed, "split"), self._num, *grid(self._num)
                _find_places(triples, *order, places, self._entity, self._relation)
                writer.append(places)

    def free_places(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield triples with their places, −1 for one that train needs, some at a time."""
        for triples, places in zip(self._read(), read_pieces(self._file, np.int64, rows=self._rows), strict=True):
            free = np.empty(len(places), np.int64)
            _mark_first(triples, places, self._entity, self._relation, free)
            yield triples, free

    def hold_out(self, fractions: tuple[float, float, float]) -> HoldOut:
        """Return which triples are held out: the last free ones of the order, as many as the fractions ask for."""
        wanted = num_held_out(self._num, fractions)
        if not sum(wanted):
            return HoldOut(self._num, self._num)
        per_block = -(-self._num // _BLOCKS)
        counts = np.zeros(_BLOCKS, np.int64)
        for _, places in self.free_places():
            counts += np.bincount(places[places >= 0] // per_block, minlength=_BLOCKS)
        num_valid, num_test = _shrunk(wanted, int(counts.sum()))
        after = counts[::-1].cumsum()[::-1]  # free places in a block and all after it
        # Each split begins so many free places from the end, in the last block that has as many from its start on.
        from_end = {"valid": num_valid + num_test, "test": num_test}
        blocks = {name: int(np.searchsorted(-after, -num, "right")) - 1 for name, num in from_end.items() if num}
        inside = self._places_inside({block: block * per_block for block in blocks.values()}, per_block)
        starts = {name: int(inside[block][after[block] - from_end[name]]) for name, block in blocks.items()}
        test_from = starts.get("test", self._num)
        return HoldOut(starts.get("valid", test_from), test_from)

    def _places_inside(self, begins: dict[int, int], size: int) -> dict[int, np.ndarray]:
        """Return the free places of some blocks, ascending."""
        found: dict[int, list[np.ndarray]] = {block: [] for block in begins}
        for _, places in self.free_places():
            for block, begin in begins.items():
                found[block].append(places[(places >= begin) & (places < begin + size)])
        return {block: np.sort(np.concatenate(parts)) for block, parts in found.items()}


def _shrunk(wanted: list[int], num_free: int) -> tuple[int, int]:
    """Return how many triples valid and test get: fewer in proportion if there are not enough free ones."""
    num_valid, num_test = wanted
    if num_valid + num_test > num_free:
        num_valid = num_free * num_valid // (num_valid + num_test)
        num_test = num_free - num_valid if num_test else 0
    return num_valid, num_test
