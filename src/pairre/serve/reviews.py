"""Verdicts on discovered links, kept in a local file: one JSON line each, on disk before the answer is sent.

The last verdict on a triple counts. A line that a power failure cut short is skipped, and the next one begins anew.
"""

from __future__ import annotations

import datetime
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, get_args

from pairre.serve.contract import ServeError
from pairre.serve.schemas import Accepted, PrecisionEstimate, ReviewSummary
from pairre.support.errors import RunError
from pairre.support.files import disk_errors, try_lock
from pairre.support.reading import parse_json
from pairre.support.text import json_text, visible

Verdict = Literal["accept", "reject", "skip", "undo"]  # the last forgets what was said before
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Names = tuple[str, str, str]
_Z = 1.959963984540054  # of a 95% interval
_MAX_LINE = 1 << 17  # characters


class ReviewsOffError(ServeError):
    """Verdicts cannot be stored."""

    status, code = 403, "reviews_off"


class Reviews:
    """The verdicts of one run, in a file that this process holds alone."""

    def __init__(self, path: Path) -> None:
        """Read the verdicts of a file and hold it; a RunError says that another process does, or what is wrong."""
        self.path, self._lock = path, threading.Lock()
        self._verdicts: dict[Names, tuple[Verdict, str]] = {}
        self.num_skipped = 0
        with disk_errors(path):
            held = try_lock(path)
        if held is None:
            raise RunError(f"{visible(str(path))}: in use by another server")
        self._file: IO[str] = held
        with disk_errors(path):
            self._read()

    def _read(self) -> None:
        with self.path.open("rb") as file:
            last = b"\n"
            for line in file:
                last = line
                if (entry := _parsed(line)) is None:
                    self.num_skipped += 1
                else:
                    self._keep(*entry)
        if not last.endswith(b"\n"):
            self._write("\n")

    def _write(self, text: str) -> None:
        data = text.encode()
        descriptor = self._file.fileno()
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)

    def add(self, names: Names, verdict: Verdict) -> None:
        """Store a verdict on a triple, given by the names that the graph has."""
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        head, relation, tail = names
        entry = {"head": head, "relation": relation, "tail": tail, "verdict": verdict, "when": when}
        with self._lock, disk_errors(self.path):
            self._write(json_text(entry, indent=None) + "\n")
            self._keep(names, verdict, when)

    def _keep(self, names: Names, verdict: Verdict, when: str) -> None:
        self._verdicts.pop(names, None)
        if verdict != "undo":
            self._verdicts[names] = (verdict, when)

    def judged(self, names: Names) -> bool:
        """Return whether there is a verdict on a triple."""
        return names in self._verdicts

    def summary(self) -> ReviewSummary:
        """Return how many verdicts there are of each kind, and the precision that they suggest."""
        with self._lock:
            given = [verdict for verdict, _ in self._verdicts.values()]
        accepted, rejected, skipped = (given.count(verdict) for verdict in VERDICTS[:3])
        precision = wilson(accepted, accepted + rejected)
        return {"accepted": accepted, "rejected": rejected, "skipped": skipped, "precision": precision}

    def accepted(self) -> list[Accepted]:
        """Return the accepted triples, in the order of their verdicts."""
        with self._lock:
            rows = list(self._verdicts.items())
        return [
            {"head": head, "relation": relation, "tail": tail, "when": when}
            for (head, relation, tail), (verdict, when) in rows
            if verdict == "accept"
        ]

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _parsed(line: bytes) -> tuple[Names, Verdict, str] | None:
    """Return the triple, the verdict and the time of a line, or None if it is not one."""
    if len(line) > _MAX_LINE:
        return None
    try:
        entry: Any = parse_json(line.decode("utf-8"))
        head, relation, tail, verdict, when = (entry[key] for key in ("head", "relation", "tail", "verdict", "when"))
    except (ValueError, KeyError, TypeError):
        return None
    texts = all(isinstance(text, str) for text in (head, relation, tail, when))
    return ((head, relation, tail), verdict, when) if texts and verdict in VERDICTS else None


def wilson(successes: int, total: int) -> PrecisionEstimate | None:
    """Return a share with its 95% interval (Wilson's, which holds for few trials too), or None without trials."""
    if total == 0:
        return None
    p, z = successes / total, _Z
    middle = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return {"estimate": p, "low": max(0.0, middle - half), "high": min(1.0, middle + half)}


def csv_rows(triples: list[Accepted]) -> Iterator[list[str]]:
    """Yield the rows of a CSV file of accepted triples, with a header."""
    yield ["head", "relation", "tail", "when"]
    for one in triples:
        yield [one["head"], one["relation"], one["tail"], one["when"]]
