"""Arrays in files: NumPy's own format, written piece by piece and mapped into memory to be read."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from pairre.support.errors import GraphError
from pairre.support.reading import file_fault

_HEADER = 128  # bytes; a multiple of 64, as the format asks for, and enough for any shape
# What NumPy's format says in a header of that size: nothing of it is evaluated.
_TEXT = re.compile(
    rb"\x93NUMPY\x01\x00\x76\x00\{'descr': '([<|][iu][1248])', 'fortran_order': False, "
    rb"'shape': \((\d{1,18}),(?: (\d{1,9}))?\), \} *\n"
)
_PIECE = 1 << 18  # rows that are read at once


class ArrayWriter:
    """Writes an array whose length is known when all of it is written."""

    def __init__(self, path: Path, dtype: Any, width: int = 0) -> None:
        """Begin an array [N], or [N, width]."""
        self.dtype, self.width, self.length = np.dtype(dtype), width, 0
        self._file = path.open("wb")
        self._file.write(bytes(_HEADER))

    def append(self, rows: np.ndarray) -> None:
        """Write some more rows."""
        assert rows.shape[1:] == ((self.width,) if self.width else ())
        self._file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.length += len(rows)

    def close(self) -> None:
        """Write how long the array is, and flush it to disk."""
        shape = (self.length, self.width) if self.width else (self.length,)
        text = f"{{'descr': {self.dtype.str!r}, 'fortran_order': False, 'shape': {shape}, }}"
        text = text.ljust(_HEADER - 11) + "\n"
        self._file.seek(0)
        self._file.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin1"))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()


def map_array(path: Path, dtype: Any, width: int = 0) -> np.ndarray:
    """Return an array [N], or [N, width], that is read from its file where it is used; it cannot be written to."""
    array = _mapped(path)
    if array.dtype != np.dtype(dtype) or array.shape[1:] != ((width,) if width else ()) or array.ndim > 2:
        raise GraphError(f"{path}: damaged: it holds {array.dtype} {list(array.shape)}")
    return array


def _mapped(path: Path) -> np.ndarray:
    if fault := file_fault(path):
        raise GraphError(f"{path}: {fault}")
    try:
        with path.open("rb") as file:
            found = _TEXT.fullmatch(file.read(_HEADER))
        if not found:
            raise GraphError(f"{path}: damaged: not an array as graphs on disk have them")
        shape, dtype = tuple(int(size) for size in found.groups()[1:] if size), np.dtype(found[1].decode())
        if path.stat().st_size != _HEADER + dtype.itemsize * math.prod(shape):
            raise GraphError(f"{path}: damaged: its size is not what it says")
        if not math.prod(shape):
            return np.empty(shape, dtype)
        return np.asarray(np.memmap(path, dtype, "r", _HEADER, shape))
    except OSError as error:
        raise GraphError(f"{path}: cannot be read: {error.strerror or error}") from error


def num_rows(path: Path) -> int:
    """Return the length of an array."""
    return len(_mapped(path))


def read_pieces(path: Path, dtype: Any, width: int = 0, rows: int = _PIECE) -> Iterator[np.ndarray]:
    """Yield the rows of an array from its first to its last, some at a time, without mapping it.

    Pages of a mapped file count as memory of the process; these do not.
    """
    dtype = np.dtype(dtype)
    with path.open("rb") as file:
        file.seek(_HEADER)
        while data := file.read(rows * dtype.itemsize * max(1, width)):
            piece = np.frombuffer(data, dtype)
            yield piece.reshape(-1, width) if width else piece


def as_tensor(array: np.ndarray) -> Any:
    """Return an array as a tensor of the same memory; nothing may write to it, as nothing writes to a graph."""
    import torch

    with warnings.catch_warnings():  # torch warns that writing would not be safe
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
