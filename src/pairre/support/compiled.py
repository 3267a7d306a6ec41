"""Functions compiled by Numba whose compiled code is kept on disk, in files that are compared with their checksum.

Numba reads whatever its cache holds: a file that was cut off is a traceback, and a flipped bit is wrong machine code.
Here a file that is not what was written is compiled anew and written again; so is one that Numba itself wrote. A cache
that cannot be written costs time, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.runtime.nrt import rtsys

_TRIED = {(0, 68)}
_DIGEST = hashlib.sha256().digest_size  # bytes at the end of a file


def compiled(**options: Any) -> Any:
    """Return a decorator like `numba.njit(cache=True)`, with these options, whose cache heals itself."""

    def decorate(function: Any) -> Any:
        made = numba.njit(**options)(function)
        # Numba raises RuntimeError where it finds no folder that it may write to.
        with contextlib.suppress(RuntimeError):
            made._cache = _Cache(function)
        return made

    return decorate


class _Cache(FunctionCache):
    """The compiled code of one function, in checked files."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _CheckedFiles(self.cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for some types of arguments, or None.

        Numba first fills its registries, which takes longer than most queries. What is already compiled only needs the
        runtime, and compilation fills the registries itself. That is how the versions work that were tried.
        """
        if numba.version_info[:2] not in _TRIED:
            return super().load_overload(sig, target_context)
        rtsys.initialize(target_context)
        return self._load_overload(sig, target_context)


class _CheckedFiles(IndexDataCacheFile):
    """The index and the data files of one function, each followed by its SHA-256, which a pickle's reader ignores."""

    def save(self, key: Any, data: Any) -> None:
        """Write the code for some types of arguments, if possible."""
        with contextlib.suppress(OSError):
            super().save(key, data)

    def _load_index(self) -> Any:
        return super()._load_index() if _is_whole(self._index_path) else {}

    def _load_data(self, name: str) -> Any:
        if not _is_whole(self._data_path(name)):
            raise FileNotFoundError(name)  # so that it is compiled and written again
        return super()._load_data(name)

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())


def _is_whole(path: str) -> bool:
    """Return whether a file ends with the checksum of what is before."""
    try:
        data = memoryview(Path(path).read_bytes())
    except OSError:
        return False
    return hashlib.sha256(data[:-_DIGEST]).digest() == data[-_DIGEST:]
