"""The ids of names in memory by hash: built once, after which a name is found without looking at the others.

E names.
"""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pairre.support.compiled import compiled

_OFFSETS = {pa.string(): np.int32, pa.large_string(): np.int64}


@compiled(nogil=True)
def _hash_texts(ends, text, hashes):
    """Write the hash of each text (FNV-1a, then mixed, so that similar names are far apart)."""
    for i in range(hashes.shape[0]):
        x = np.uint64(0xCBF29CE484222325)
        for position in range(ends[i], ends[i + 1]):
            x = (x ^ np.uint64(text[position])) * np.uint64(0x100000001B3)
        hashes[i] = x ^ (x >> np.uint64(32))


class NameIndex:
    """Finds the id of a name by its hash."""

    def __init__(self, names: pa.Array) -> None:
        self._names = names
        hashes = _hashes(names)
        self._order = np.argsort(hashes).astype(np.int32)  # [E] ids
        self._hashes = hashes[self._order]  # [E], ascending

    def find(self, name: str) -> int | None:
        """Return the id of a name, or None; of equal names the one with the smallest id."""
        [wanted] = _hashes(pa.array([name], self._names.type))
        first, last = (int(np.searchsorted(self._hashes, wanted, side)) for side in ("left", "right"))
        ids = sorted(self._order[first:last].tolist())
        return next((id for id in ids if self._names[id].as_py() == name), None)


def _hashes(names: pa.Array) -> np.ndarray:
    """Return the hash of each name, uint64 [E]."""
    _, ends, text = names.buffers()
    offsets = np.frombuffer(ends, _OFFSETS[names.type])[names.offset : names.offset + len(names) + 1]
    hashes = np.empty(len(names), np.uint64)
    _hash_texts(offsets, np.frombuffer(text or b"\0", np.uint8), hashes)
    return hashes
