"""Streams of RDF that are checked while pyoxigraph reads them: nesting, the length of a token, and truncated XML.

pyoxigraph represents a quoted triple inside a quoted triple by recursion, which ends the process when it is deep, and
copies the context of a JSON-LD object for each object inside it. Real files have a few levels.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO
from xml.parsers import expat

import numpy as np

from pairre.support.errors import GraphError

MAX_DEPTH = 256  # levels of nesting
MAX_TOKEN = 16 << 20  # bytes of a name or a literal, which is also pyoxigraph's limit
BLOCK = 1 << 20  # bytes that are checked at once
_TOKENS = re.compile(  # possessive repetitions (*+, ++), so that a long literal takes no memory for going back
    rb"""\\.                                                       # an escaped character of a prefixed name
    |(?P<text>\"\"\"(?:[^"\\]++|\\.|"(?!""))*+(?:\"\"\"|\\?\Z)     # a literal, or the part of it that is there
    |\'\'\'(?:[^'\\]++|\\.|'(?!\'\'))*+(?:\'\'\'|\\?\Z)
    |"(?:[^"\\\r\n]++|\\.)*+(?:["\r\n]|\\?\Z)
    |'(?:[^'\\\r\n]++|\\.)*+(?:['\r\n]|\\?\Z)
    |<[^<>"{}|^`\\\s]*+(?:>|\Z)                                    # an IRI
    |\#[^\r\n]*+(?:[\r\n]|\Z))                                     # a comment
    |(?P<open><<)|(?P<close>>>)""",
    re.DOTALL | re.VERBOSE,
)


class Checked(io.RawIOBase):
    """A stream of bytes that passes each block to `check` before the parser sees it."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self.path, self.stream = path, stream

    def readable(self) -> bool:
        """Return True, as `io.BufferedReader` demands."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer with checked bytes and return their number."""
        data = self.stream.read(len(buffer))
        self.check(data)
        buffer[: len(data)] = data
        return len(data)

    def check(self, data: bytes) -> None:
        """Raise a GraphError if the stream must not be read further; `data` is empty at its end."""
        raise NotImplementedError

    def too_deep(self) -> GraphError:
        """Return the error of a stream with more than `MAX_DEPTH` levels."""
        return GraphError(f"{self.path}: nested more than {MAX_DEPTH} levels deep")

    def too_long(self) -> GraphError:
        """Return the error of a stream with a token of more than `MAX_TOKEN` bytes."""
        return GraphError(f"{self.path}: a name or a literal of more than {MAX_TOKEN >> 20} MiB")


class CheckedText(Checked):
    """N-Triples, N-Quads or Turtle, in which quoted triples can be nested."""

    def __init__(self, path: Path, stream: IO[bytes], reopen: Callable[[], IO[bytes]], line_based: bool) -> None:
        super().__init__(path, stream)
        self.reopen, self.line_based = reopen, line_based
        self.num_opened, self.last, self.num_in_line = 0, b"", 0

    def check(self, data: bytes) -> None:
        """Follow the length of lines and count quoted triples; measure how deep they are when there are many."""
        if self.line_based:
            end = data.rfind(b"\n")
            self.num_in_line = len(data) - end - 1 + (self.num_in_line if end < 0 else 0)
            if self.num_in_line > MAX_TOKEN:
                raise self.too_long()
        if self.num_opened > MAX_DEPTH:  # the whole file was examined
            return
        self.num_opened += (self.last + data).count(b"<<")
        self.last = data[-1:] if data[-2:] != b"<<" else b""
        if self.num_opened > MAX_DEPTH:  # only then can it be nested so deeply; few files have any
            with self.reopen() as stream:
                self._measure(stream)

    def _measure(self, stream: IO[bytes]) -> None:
        """Read all tokens of a stream and raise a GraphError if quoted triples are nested too deeply."""
        depth, text, more = 0, b"", True
        while more:
            block = stream.read(BLOCK)
            text, more, end = text + block, bool(block), 0
            for token in _TOKENS.finditer(text):
                if more and token.end() > len(text) - 3:
                    break  # it may be longer
                end = token.end()
                depth = max(0, depth + (token.lastgroup == "open") - (token.lastgroup == "close"))
                if depth > MAX_DEPTH:
                    raise self.too_deep()
            else:
                end = max(end, len(text) - 3)
            text = text[end:]
            if len(text) > MAX_TOKEN + BLOCK:
                raise self.too_long()


class CheckedJson(Checked):
    """JSON, whose objects and lists can be nested."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        super().__init__(path, stream)
        self.depth, self.in_string, self.rest = 0, False, b""

    def check(self, data: bytes) -> None:
        """Follow brackets outside of strings."""
        text = self.rest + data
        num_backslashes = len(text) - len(text.rstrip(b"\\"))
        cut = len(text) - num_backslashes % 2  # an odd backslash escapes the first character of the next block
        text, self.rest = text[:cut], text[cut:]
        parts = re.sub(rb"\\.", b"", text, flags=re.DOTALL).split(b'"')
        outside = np.frombuffer(b"".join(parts[int(self.in_string) :: 2]), np.uint8)
        self.in_string ^= len(parts) % 2 == 0
        opened = np.isin(outside, np.frombuffer(b"[{", np.uint8)).astype(np.int64)
        levels = self.depth + np.cumsum(opened - np.isin(outside, np.frombuffer(b"]}", np.uint8)))
        if len(levels):
            self.depth = int(levels[-1])
            if levels.max() > MAX_DEPTH:
                raise self.too_deep()


class CheckedXml(Checked):
    """XML, checked by expat: pyoxigraph neither reports lines nor notices a truncated file.

    Expat bounds the expansion of entities and follows no reference to another file.
    """

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        super().__init__(path, stream)
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._start, self._end
        self.depth = self.num_read = 0
        self.ended = False

    def check(self, data: bytes) -> None:
        """Pass a block to expat."""
        if not self.ended:
            self.parser.Parse(data, not data)
        self.ended = not data
        self.num_read += len(data)
        if self.num_read - self.parser.CurrentByteIndex > MAX_TOKEN:
            raise self.too_long()

    def _start(self, _name: str, _attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.too_deep()

    def _end(self, _name: str) -> None:
        self.depth -= 1
