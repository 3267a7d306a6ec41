"""Open files that may be compressed: which compression an ending stands for, and lines of text with their numbers.

What a small file can cost is bounded here: how much comes out of a compressed file, and how long a line is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pairre.support.errors import GraphError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # ending → Arrow's name of the codec
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_LINE = 16 << 20  # bytes; three names of a megabyte each are far below it
# Triples differ from each other, so files of them shrink to a tenth, with long IRIs at most to a thirtieth or so. What
# expands further than this, and past an allowance that any file has, is a decompression bomb or nearly empty.
MAX_RATIO, RATIO_ALLOWANCE = 64, 32 << 20
_BLOCK = 1 << 20


def split_ending(path: Path) -> tuple[str, str | None]:
    """Return the lower-case ending of a file and its compression: `graph.nt.gz` → (".nt", "gzip")."""
    endings = [ending.lower() for ending in path.suffixes]
    compression = COMPRESSIONS.get(endings[-1]) if endings else None
    if compression:
        endings.pop()
    return (endings[-1] if endings else ""), compression


def open_stream(path: Path) -> pa.NativeFile:
    """Return a binary stream of the decompressed contents; reading too much out of a small file is a GraphError."""
    compression = split_ending(path)[1]
    source = pa.OSFile(os.fsencode(path))
    if compression is None:
        return source
    limit = _ExpansionLimit(path, source.size())
    return pa.TransformInputStream(pa.CompressedInputStream(source, compression), limit)


class _ExpansionLimit:
    """Passes on what comes out of a compressed file, until that is more than a file of its size can hold."""

    def __init__(self, path: Path, num_compressed: int) -> None:
        self.path = path
        self.remaining = max(RATIO_ALLOWANCE, MAX_RATIO * num_compressed)

    def __call__(self, data: pa.Buffer) -> pa.Buffer:
        self.remaining -= len(data)
        if self.remaining < 0:
            raise GraphError(
                f"{self.path}: expands more than {MAX_RATIO}-fold, which triples do not; "
                "if that is right, decompress the file first"
            )
        return data


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each line of a UTF-8 file that is not empty as (number from 1, text with its line break).

    A lone carriage return ends a line too, as it does for Arrow's parser. A byte order mark is left out. A line that is
    not UTF-8 or longer than `MAX_LINE` raises a GraphError.
    """
    for number, line in _numbered_lines(path):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"byte 0x{line[error.start]:02x} at position {error.start + 1}"
            raise GraphError(f"{path}:{number}: invalid UTF-8 ({where})") from error
        yield number, text


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (number, bytes) of lines that are not empty; a block of nothing but line breaks costs one count."""
    number, rest = 1, b""
    with open_stream(path) as stream:
        first = stream.read(len(BYTE_ORDER_MARK)).removeprefix(BYTE_ORDER_MARK)
        while block := first + stream.read(_BLOCK):
            first = b""
            block = rest + block
            # The last line may go on in the next block, and a carriage return at the end may be half of a line break.
            end = max(block.rfind(b"\n"), block.rfind(b"\r", 0, -1)) + 1
            whole, rest = block[:end], block[end:]
            if len(rest) > MAX_LINE:
                raise GraphError(f"{path}:{number + _count_breaks(whole)}: a line of more than {MAX_LINE >> 20} MiB")
            if not whole.strip(b"\r\n"):
                number += _count_breaks(whole)
                continue
            for line in whole.splitlines(keepends=True):
                if line[0] not in b"\r\n":
                    yield number, line
                number += 1
        for line in rest.splitlines(keepends=True):
            if line[0] not in b"\r\n":
                yield number, line
            number += 1


def _count_breaks(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
