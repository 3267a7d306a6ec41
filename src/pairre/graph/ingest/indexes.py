"""Write the index of known triples from sorted triples: the parts of `SideIndex`, row by row."""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from pathlib import Path

import numpy as np

from pairre.graph.stored.arrays import ArrayWriter
from pairre.graph.stored.files import IndexName, index_files
from pairre.support.compiled import compiled


@compiled(nogil=True)
def _find_pairs(triples, num_relations, position, last_pair, last_member, pairs, starts, members):
    """Write the members of distinct triples, and the pairs that begin with them; return both numbers, and the last."""
    num_pairs = num_members = 0
    for i in range(len(triples)):
        pair, member = np.int64(triples[i, 0]) * num_relations + triples[i, 1], triples[i, 2]
        if pair != last_pair:
            pairs[num_pairs], starts[num_pairs] = pair, position + num_members
            num_pairs += 1
        elif member == last_member:
            continue
        members[num_members] = member
        num_members += 1
        last_pair, last_member = pair, member
    return num_pairs, num_members, last_pair, last_member


class IndexWriter:
    """Writes the index of one side; triples come sorted, and equal ones count once."""

    def __init__(self, folder: Path, name: IndexName, side: str, num_relations: int) -> None:
        files = index_files(folder, name, side)
        self._pairs, self._starts = ArrayWriter(files["pairs"], np.int64), ArrayWriter(files["starts"], np.int64)
        self._members = ArrayWriter(files["members"], np.int32)
        self._num_relations, self._last = num_relations, (-1, -1)

    def append(self, triples: np.ndarray) -> None:
        """Add triples [n, 3]: the entity of the pair, the relation, the member."""
        pairs, starts = np.empty((2, len(triples)), np.int64)
        members = np.empty(len(triples), np.int32)
        num_pairs, num_members, *last = _find_pairs(
            triples, self._num_relations, self._members.length, *self._last, pairs, starts, members
        )
        self._last = last[0], last[1]
        self._pairs.append(pairs[:num_pairs])
        self._starts.append(starts[:num_pairs])
        self._members.append(members[:num_members])

    def close(self) -> None:
        """Finish the files."""
        self._starts.append(np.array([self._members.length]))
        for file in (self._pairs, self._starts, self._members):
            file.close()
