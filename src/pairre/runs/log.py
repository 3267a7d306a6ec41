"""The log of a run: one line of JSON for each report and each validation, each with a checksum of its own."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import zlib
from pathlib import Path
from typing import Any

from pairre.support.files import disk_errors, write_text

log = logging.getLogger("pairre")
_CHECKED = re.compile(rb'(\{.*), "crc32": "([0-9a-f]{8})"\}')
# Lines of format 1 have no checksum. No other keys are accepted without one, as a damaged `crc32` would be.
_KEYS_OF_FORMAT_1 = {"step", "loss", "triples_per_second", "valid", "best_mrr", "seconds"}


class RunLog:
    """The file `log.jsonl`, to which entries are appended."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def append(self, entry: dict[str, Any]) -> None:
        """Append an entry."""
        with disk_errors(self.file), self.file.open("a", encoding="utf-8") as opened:
            opened.write(_line(entry))

    def write(self, entries: list[dict[str, Any]]) -> None:
        """Replace all entries."""
        write_text(self.file, "".join(_line(entry) for entry in entries))

    def sync(self) -> None:
        """Flush the file to disk."""
        with disk_errors(self.file), self.file.open("a") as opened:
            os.fsync(opened.fileno())

    def entries(self) -> list[dict[str, Any]]:
        """Return all entries; damaged lines are left out, with a warning."""
        found, num_damaged = self.read()
        if num_damaged:
            log.warning("%s: %s damaged lines left out", self.file, f"{num_damaged:,}")
        return found

    def read(self) -> tuple[list[dict[str, Any]], int]:
        """Return all good entries, and the number of damaged lines without a last one that a crash cut off."""
        with disk_errors(self.file):
            lines = self.file.read_bytes().split(b"\n") if self.file.exists() else [b""]
        found = [_parse(line) for line in lines[:-1]]
        entries = [entry for entry in found if entry is not None]
        return entries, len(found) - len(entries)

    def cut(self, step: int) -> None:
        """Remove the entries after a step that is about to be repeated."""
        self.write([entry for entry in self.entries() if entry["step"] <= step])


def _line(entry: dict[str, Any]) -> str:
    text = json.dumps(entry, allow_nan=False)
    return f'{text[:-1]}, "crc32": "{zlib.crc32(text.encode()):08x}"}}\n'


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return the entry of a line, or None if the line is damaged."""
    # The checksum is of the text, because two texts of digits may be one number.
    checked = _CHECKED.fullmatch(line)
    text = checked[1] + b"}" if checked else line
    if checked and checked[2] != f"{zlib.crc32(text):08x}".encode():
        return None
    try:
        entry = json.loads(text)
        if not checked and not entry.keys() <= _KEYS_OF_FORMAT_1:
            return None
        return entry if _is_entry(entry) else None
    except (ValueError, RecursionError, AttributeError, TypeError):
        return None


def _is_entry(entry: dict[str, Any]) -> bool:
    """Return whether an entry has a step, and the loss of a report or the metrics of a validation."""
    step, valid = entry.get("step"), entry.get("valid")
    numbers = valid.values() if isinstance(valid, dict) and "mrr" in valid else [entry.get("loss")]
    if type(step) is not int or step < 0 or not all(type(number) in (int, float) for number in numbers):
        return False
    return _is_finite(entry)


def _is_finite(value: Any) -> bool:
    """Return whether every number of a parsed JSON value is one that a float can hold and JSON can say."""
    if isinstance(value, dict | list):
        return all(map(_is_finite, value.values() if isinstance(value, dict) else value))
    try:
        return not isinstance(value, int | float) or math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False
