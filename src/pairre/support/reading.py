"""Read files that someone else wrote: paths that are no regular file, small texts of bounded size, JSON and TOML.

Whatever is wrong with such a file is described in one line. A FIFO or a device is refused before it is opened, because
reading it may never end.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from pairre.support.errors import PairREError
from pairre.support.text import visible

MAX_TEXT = 64 << 20  # bytes of a file that is read as a whole, such as a recipe; a real one has a few thousand
_MAX_LENGTH_DIGITS = 18  # of a Content-Length: what has more is no length, and Python refuses thousands of digits
_REASONS = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.ELOOP: "symbolic links that lead in a circle",
    errno.ENAMETOOLONG: "the name is too long for a file",
    errno.EACCES: "permission denied",
}


def path_fault(path: Path) -> str | None:
    """Return why a path cannot name any file, or None: a NUL character in it, or bytes that are not UTF-8."""
    if "\0" in str(path):
        return "a NUL character in the name"
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return "the name is not valid UTF-8; rename it"
    return None


def check_path(path: Path) -> None:
    """Raise a PairREError if a path cannot name any file."""
    if fault := path_fault(path):
        raise PairREError(f"{shown(path)}: {fault}")


def announced_bytes(text: str | None) -> int | None:
    """Return the number of a Content-Length header, or None if it is none or has absurdly many digits."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= _MAX_LENGTH_DIGITS else None


def file_fault(path: Path) -> str | None:
    """Return why a path is not a regular file that can be read, or None if it is one."""
    if fault := path_fault(path):
        return fault
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return _REASONS.get(error.errno or 0, error.strerror or str(error))
    if stat.S_ISDIR(mode):
        return "a folder, not a file"
    if not stat.S_ISREG(mode):
        return "not a regular file, but a pipe, a device or a socket; write its contents to a file first"
    return None if os.access(path, os.R_OK) else "permission denied"


def shown(path: str | Path) -> str:
    """Return a path as it can be printed: bytes that are not UTF-8 and control characters are escaped."""
    return shortened(visible(os.fspath(path)), 300)


def shortened(value: object, length: int = 80) -> str:
    """Return a text that is cut in the middle if it has more than `length` characters, for error messages."""
    text = str(value)
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[:half]}…{text[-half:]}"


def read_text(path: Path, error_type: type[PairREError]) -> str:
    """Return the text of a small UTF-8 file; everything that can go wrong is an `error_type` of one line."""
    if fault := file_fault(path):
        raise error_type(f"{shown(path)}: {fault}")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            raise error_type(f"{path}: more than {MAX_TEXT >> 20} MiB, which no file of this kind has")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise error_type(f"{path}: invalid UTF-8 (byte 0x{data[error.start]:02x} at {error.start + 1})") from error
    except OSError as error:
        raise error_type(f"{path}: cannot be read: {error.strerror or error}") from error


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML text; a text that is not TOML, or too deeply nested, raises a ValueError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(_described(error)) from error


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; a text that is not JSON, or too deeply nested, raises a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(_described(error)) from error


def _described(error: ValueError) -> str:
    """Return the message of a parser; Python's own about whole numbers of thousands of digits is replaced."""
    return "a whole number has too many digits" if "integer string conversion" in str(error) else str(error)
