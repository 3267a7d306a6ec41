"""Check that the arrays of a graph on disk make sense together, so that no id in them leads out of another array.

Checksums find damage, not malice: who can change a file can change its checksum. Compiled code reads these arrays
without looking at bounds, so all of them are looked through once, a piece at a time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from pairre.graph.split import SPLIT_NAMES
from pairre.graph.stored.arrays import map_array, num_rows, read_pieces
from pairre.graph.stored.vocabulary import StoredVocabulary, vocabulary_files
from pairre.support.errors import GraphError

_NAMES = 1 << 18  # that are looked at once


def check_contents(folder: Path, entities: StoredVocabulary, relations: StoredVocabulary) -> None:
    """Raise a GraphError that names the first file whose values cannot be right."""
    for prefix, names in (("entities", entities), ("relations", relations)):
        files = vocabulary_files(folder, prefix)
        _check_ascending(files["ends"], np.int64, num_rows(files["text"]), strictly=False)
        _check_ascending(files["buckets"], np.int32, len(names), strictly=False)
        try:
            for start in range(0, len(names), _NAMES):
                names.names.slice(start, _NAMES).validate(full=True)
        except pa.ArrowInvalid as error:
            raise GraphError(f"{files['text']}: damaged: not UTF-8") from error
    sizes = np.array([len(entities), len(relations), len(entities)])
    for split in SPLIT_NAMES:
        _check_below(folder / f"{split}.npy", 3, sizes)
    for pairs in sorted(folder.glob("*-pairs.npy")):
        starts, members = (pairs.with_name(pairs.name.replace("pairs", part)) for part in ("starts", "members"))
        map_array(members, np.int32)
        _check_ascending(pairs, np.int64, len(entities) * len(relations) - 1, strictly=True)
        _check_ascending(starts, np.int64, num_rows(members), strictly=True)
        _check_below(members, 0, sizes[:1])


def _check_below(path: Path, width: int, sizes: np.ndarray) -> None:
    """Raise a GraphError unless all ids of an array are from 0 up and below the sizes of its columns."""
    map_array(path, np.int32, width)
    for ids in read_pieces(path, np.int32, width):
        if (ids < 0).any() or (ids.reshape(len(ids), -1) >= sizes).any():
            raise GraphError(f"{path}: damaged: an id without a name")


def _check_ascending(path: Path, dtype: type, highest: int, *, strictly: bool) -> None:
    """Raise a GraphError unless the numbers of an array ascend, from 0 up and not above the highest."""
    map_array(path, dtype)
    last = -1 if strictly else 0
    for numbers in read_pieces(path, dtype):
        steps = np.diff(numbers, prepend=np.array([last], dtype))
        if (steps < strictly).any():
            raise GraphError(f"{path}: damaged: its numbers do not ascend")
        last = numbers[-1]
    if last > highest:
        raise GraphError(f"{path}: damaged: it ends at {last}, above {highest}")
