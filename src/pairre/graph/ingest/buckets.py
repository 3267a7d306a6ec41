"""Sort triples that do not fit into memory: by the range of the first entity into files, each of which is sorted alone.

A triple in a bucket is one number: first entity (from the first of the bucket on), relation, second entity and split,
so that sorting is that of numbers. Entities are numbered at random, which makes buckets about equally large; only an
entity with more triples than a bucket makes a larger one.

N triples, E entities, R relations.
"""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairre.support.compiled import compiled
from pairre.support.errors import GraphError

_SPLITS = 4  # numbers that a split may have, a power of two
_ROWS = 1 << 20  # that are decoded at once
_MAX_BUCKETS = 1 << 14


@compiled(nogil=True)
def _encode(first, relation, second, split, span, num_relations, num_entities, ends, keys):
    """Write the keys of triples ordered by bucket, and where each bucket ends in them."""
    ends[:] = 0
    for i in range(len(first)):
        ends[first[i] // span + 1] += 1
    for bucket in range(1, len(ends)):
        ends[bucket] += ends[bucket - 1]
    place = ends[:-1].copy()
    for i in range(len(first)):
        bucket = first[i] // span
        key = np.int64(first[i] - bucket * span) * num_relations + relation[i]
        keys[place[bucket]] = (key * num_entities + second[i]) * _SPLITS + split[i]
        place[bucket] += 1


@compiled(nogil=True)
def _decode(keys, previous, begin, num_relations, num_entities, triples, splits):
    """Write distinct keys as triples with their splits, and return how many there are."""
    num = 0
    for key in keys:
        if key != previous:
            pair, second = divmod(key // _SPLITS, num_entities)
            first, relation = divmod(pair, num_relations)
            triples[num, 0], triples[num, 1], triples[num, 2] = begin + first, relation, second
            splits[num] = key % _SPLITS
            num += 1
        previous = key
    return num


@dataclass(frozen=True)
class SortedRows:
    """Some distinct triples in ascending order, which follow those before."""

    triples: np.ndarray  # [n, 3] int32: first entity, relation, second entity
    split: np.ndarray  # [n] int8


class Buckets:
    """The files of one sort."""

    def __init__(self, folder: Path, name: str, num_rows: int, num_entities: int, num_relations: int, rows: int):
        """Prepare a sort of `num_rows` triples, with about `rows` in a bucket."""
        self._folder, self._name = folder, name
        self._sizes = num_relations, num_entities
        largest = (2**63 - 1) // (_SPLITS * num_relations * num_entities)  # entities of a bucket whose keys fit
        self._span = max(1, min(num_entities * rows // max(1, num_rows), largest, num_entities))
        self.num_buckets = -(-num_entities // self._span)
        if largest == 0 or self.num_buckets > max(_MAX_BUCKETS, 2 * num_rows // rows):
            raise GraphError(f"{num_entities:,} entities and {num_relations:,} relations are more than ingest can sort")

    def add(self, first: np.ndarray, relation: np.ndarray, second: np.ndarray, split: np.ndarray) -> None:
        """Append triples to the files of their buckets."""
        keys, ends = np.empty(len(first), np.int64), np.empty(self.num_buckets + 1, np.int64)
        _encode(first, relation, second, split, self._span, *self._sizes, ends, keys)
        for bucket in np.flatnonzero(np.diff(ends)).tolist():
            with self._file(bucket).open("ab") as file:
                file.write(keys[ends[bucket] : ends[bucket + 1]].data)

    def sorted(self, advance: Callable[[float], None]) -> Iterator[SortedRows]:
        """Yield all triples in ascending order, each with each of its splits once, and remove the files.

        The arrays are used again for the next rows. `advance` gets the fraction done since its last call.
        """
        triples, splits = np.empty((_ROWS, 3), np.int32), np.empty(_ROWS, np.int8)
        for bucket in range(self.num_buckets):
            advance(1 / self.num_buckets)
            path = self._file(bucket)
            if not path.exists():
                continue
            keys = np.fromfile(path, np.int64)
            path.unlink()
            keys.sort()
            previous = -1
            for start in range(0, len(keys), _ROWS):
                part = keys[start : start + _ROWS]
                num = _decode(part, previous, bucket * self._span, *self._sizes, triples, splits)
                previous = int(part[-1])
                yield SortedRows(triples[:num], splits[:num])

    def _file(self, bucket: int) -> Path:
        return self._folder / f"{self._name}-{bucket}"
