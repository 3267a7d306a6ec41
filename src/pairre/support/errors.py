"""The exceptions a user may see: each is one line that says where, what, and what to write instead.

The command line turns every one of them into that line and exit code 2. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PairREError(Exception):
    """Base of all errors that are the input's, the machine's or the user's, not the program's."""


class GraphError(PairREError):
    """A file of triples, a split folder or a graph name is wrong."""


class DownloadError(GraphError):
    """A public benchmark could not be fetched, or is not what was published."""


class RecipeError(PairREError):
    """A recipe key or value is wrong; the message starts with its path."""


class RunError(PairREError):
    """A run folder is missing, in use, damaged, or belongs to another recipe."""


class RuleError(PairREError):
    """A file of rules, a rule or a threshold of mining is wrong."""


class DeviceError(PairREError):
    """The device asked for does not exist here."""


class TrainingError(PairREError):
    """Training cannot go on: the loss is no longer a finite number."""


class NameNotFoundError(PairREError):
    """An entity or relation name is not in the graph."""


class MissingExtraError(PairREError):
    """A command needs an optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional package: pip install 'pairre[{extra}]'")


def suggest(wrong: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest known word, or nothing."""
    nearest = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{nearest[0]}'?" if nearest else ""
