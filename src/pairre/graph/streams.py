"""Open files that may be compressed: which compression an ending stands for, and lines of text with their numbers."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pairre.support.errors import GraphError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # ending → Arrow's name of the codec
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def split_ending(path: Path) -> tuple[str, str | None]:
    """Return the lower-case ending of a file and its compression: `graph.nt.gz` → (".nt", "gzip")."""
    endings = [ending.lower() for ending in path.suffixes]
    compression = COMPRESSIONS.get(endings[-1]) if endings else None
    if compression:
        endings.pop()
    return (endings[-1] if endings else ""), compression


def open_stream(path: Path) -> pa.NativeFile:
    """Return a binary stream of the decompressed contents."""
    return pa.input_stream(str(path), compression=split_ending(path)[1])


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each line of a UTF-8 file as (number from 1, text with its line break), without a byte order mark.

    A lone carriage return ends a line too, as it does for Arrow's parser. A line that is not UTF-8 raises a GraphError.
    """
    with open_stream(path) as stream:
        parts = (part for line in io.BufferedReader(stream) for part in line.splitlines(keepends=True))
        for number, part in enumerate(parts, start=1):
            line = part.removeprefix(BYTE_ORDER_MARK) if number == 1 else part
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                where = f"byte 0x{line[error.start]:02x} at position {error.start + 1}"
                raise GraphError(f"{path}:{number}: invalid UTF-8 ({where})") from error
            yield number, text
