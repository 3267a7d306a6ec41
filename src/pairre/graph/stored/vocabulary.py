"""Vocabularies on disk: names in the order of their hashes, so that an id is found where its hash says.

E names. The files of a vocabulary are:

- `text`: all names in UTF-8, end to end, uint8;
- `ends`: where in it each name begins, and where the last one ends, int64 [E + 1];
- `buckets`: the first id of each bucket of hashes, int32 [2^k + 1]. A bucket has the names whose hashes begin with the
  same k bits; it has one name or two on average.

The hash of a name is the second half of its MD5, which is the same everywhere. So ids are as good as random: whatever
is divided by id into ranges is divided evenly.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa

from pairre.graph.stored.arrays import ArrayWriter, map_array
from pairre.graph.vocabulary import Vocabulary
from pairre.support.errors import GraphError, NameNotFoundError

HASH_SQL = "md5_number_lower"  # the same hash in DuckDB
MAX_COMPARED = 2_000_000  # names among which similar ones are looked for; with more it would take too long
_PARTS = ("text", "ends", "buckets")


def hash_name(name: str) -> int:
    """Return the hash of a name, of 64 bits."""
    return int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest()[8:], "little")


def num_hash_bits(num_names: int) -> int:
    """Return how many bits of a hash say in which bucket it is."""
    return max(1, num_names).bit_length() - 1


def vocabulary_files(folder: Path, prefix: str) -> dict[str, Path]:
    """Return the files of a vocabulary in a folder."""
    return {part: folder / f"{prefix}-{part}.npy" for part in _PARTS}


class StoredVocabulary(Vocabulary):
    """A vocabulary whose names are read from disk when they are asked for."""

    def __init__(self, folder: Path, prefix: str, item: str) -> None:
        """Open the files that `VocabularyWriter` wrote."""
        files = vocabulary_files(folder, prefix)
        ends, text = map_array(files["ends"], np.int64), map_array(files["text"], np.uint8)
        self._buckets = map_array(files["buckets"], np.int32)
        num = len(ends) - 1
        if num < 0 or ends[0] != 0 or ends[-1] != len(text) or len(self._buckets) != (1 << num_hash_bits(num)) + 1:
            raise GraphError(f"{files['ends']}: damaged: it does not fit to the other files of the {item} names")
        self._shift = 64 - num_hash_bits(num)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(text)]
        super().__init__(pa.Array.from_buffers(pa.large_string(), num, buffers), item)

    def find(self, name: str) -> int | None:
        """Return the id of a name, or None."""
        try:
            bucket = hash_name(name) >> self._shift
        except UnicodeEncodeError:  # an argument that is not UTF-8, as no name is
            raise NameNotFoundError(f"no {self.item} named {name!r}; names are UTF-8") from None
        first, last = self._buckets[bucket : bucket + 2].tolist()
        return next((id for id in range(first, last) if self[id] == name), None)

    def find_all(self, names: pa.Array) -> pa.Array:
        """Return the ids of many names at once, null where there is none."""
        return pa.array([self.find(name) for name in names.to_pylist()], pa.int32())

    def nearest(self, name: str, count: int = 5) -> list[str]:
        """Return names that are similar to a mistyped one, or none if there are too many to compare with."""
        return super().nearest(name, count) if len(self) <= MAX_COMPARED else []


class VocabularyWriter:
    """Writes a vocabulary of `num_names` names, which are given in ascending order of their hashes."""

    def __init__(self, folder: Path, prefix: str, num_names: int) -> None:
        files = vocabulary_files(folder, prefix)
        self._text, self._ends = ArrayWriter(files["text"], np.uint8), ArrayWriter(files["ends"], np.int64)
        self._buckets = ArrayWriter(files["buckets"], np.int32)
        self._bits = num_hash_bits(num_names)
        self._num_names = self._next_bucket = 0
        self._ends.append(np.zeros(1, np.int64))

    def append(self, names: pa.Array, hashes: np.ndarray) -> None:
        """Write some more names with their hashes, uint64."""
        names = names.cast(pa.large_string())
        _, ends, text = names.buffers()
        begin = np.frombuffer(ends, np.int64)[names.offset : names.offset + len(names) + 1]
        self._ends.append(begin[1:] - begin[0] + self._text.length)
        self._text.append(np.frombuffer(text or b"", np.uint8)[begin[0] : begin[-1]])
        bucket = (hashes >> np.uint64(64 - self._bits)).astype(np.int64) if self._bits else np.zeros(len(names), int)
        following = int(bucket[-1]) + 1  # the buckets before it begin in these names or in earlier ones
        self._add_buckets(np.searchsorted(bucket, np.arange(self._next_bucket, following)) + self._num_names)
        self._num_names += len(names)

    def _add_buckets(self, first_ids: np.ndarray) -> None:
        self._buckets.append(first_ids)
        self._next_bucket += len(first_ids)

    def close(self) -> None:
        """Finish the files."""
        self._add_buckets(np.full((1 << self._bits) + 1 - self._next_bucket, self._num_names))
        for file in (self._text, self._ends, self._buckets):
            file.close()
