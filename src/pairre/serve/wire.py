"""What the server and its scorer processes say to each other: frames of JSON over a socket, never anything pickled.

A frame is a tag of one byte, the length of what follows in four bytes, and that. The body of an answer is the JSON that
a client gets: the server passes it on without reading it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

Tag = Literal[
    "setup",  # → which runs to open, and how
    "note",  # ← what takes time at the start
    "ready",  # ← the runs, and where their prepared rows are
    "failed",  # ← why the runs cannot be opened
    "calls",  # → calls to be answered together, one after the other if need be
    "long calls",  # → calls that may take seconds, while others are answered
    "prepare",  # → begin with what is computed in the background
    "answers",  # ←
]
_TAGS: tuple[Tag, ...] = get_args(Tag)
_HEAD = struct.Struct("<BI")
_LENGTH = struct.Struct("<I")
_encode = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` would make one for each call
MAX_FRAME = 1 << 28  # bytes; more is no frame of ours


class Frame(NamedTuple):
    """One message."""

    tag: Tag
    data: bytes

    def json(self) -> Any:
        """Return what the message says."""
        return json.loads(self.data)


class Answered(NamedTuple):
    """The answer to a call by its number: JSON for the client, or the values of an error."""

    number: int
    is_error: bool
    body: bytes


def frame(tag: Tag, data: bytes) -> bytes:
    """Return a message as bytes."""
    return _HEAD.pack(_TAGS.index(tag), len(data)) + data


def json_frame(tag: Tag, value: Any) -> bytes:
    """Return a message of plain values as bytes."""
    return frame(tag, _encode(value).encode())


def answers_frame(answers: Iterable[Answered]) -> bytes:
    """Return answers as one message: their numbers, kinds and lengths, then their bodies."""
    answers = list(answers)
    index = _encode([[one.number, one.is_error, len(one.body)] for one in answers]).encode()
    return frame("answers", b"".join([_LENGTH.pack(len(index)), index, *(one.body for one in answers)]))


def read_answers(data: bytes) -> Iterator[Answered]:
    """Yield the answers of a message."""
    start = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    for number, is_error, length in json.loads(data[_LENGTH.size : start]):
        yield Answered(number, is_error, data[start : start + length])
        start += length


class FrameReader:
    """Messages from bytes as they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take more bytes and yield the messages that are whole; a ValueError says that these are no messages."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            tag, length = _HEAD.unpack_from(self._buffer)
            if tag >= len(_TAGS) or length > MAX_FRAME:
                raise ValueError("not a message of a scorer process")
            end = _HEAD.size + length
            if len(self._buffer) < end:
                return
            whole = bytes(self._buffer[_HEAD.size : end])
            del self._buffer[:end]
            yield Frame(_TAGS[tag], whole)
