"""The exceptions that a user may see; each message is one line that says where, what, and what to write instead.

The command line prints that line and exits with code 2, or the class's own. Any other exception is a bug and keeps
its traceback.
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable


class PairREError(Exception):
    """Base class of all errors that are caused by the input or the machine, not by the program."""

    exit_code = 2  # of a command that this error ends


class GraphError(PairREError):
    """A file of triples, a split folder or a graph name is wrong."""


class DownloadError(GraphError):
    """A public benchmark could not be downloaded, or differs from what was published."""


class RecipeError(PairREError):
    """A recipe key or value is wrong; the message starts with its path."""


class RunError(PairREError):
    """A run folder is missing, in use, damaged, or belongs to another recipe."""


class RuleError(PairREError):
    """A file of rules, a rule or a threshold of mining is wrong."""


class DeviceError(PairREError):
    """The requested device does not exist on this machine."""


class TrainingError(PairREError):
    """Training cannot continue, because the loss is no longer a finite number."""


class NameNotFoundError(PairREError):
    """A text names no entity or relation of the graph, or may mean several."""


class OutputError(PairREError):
    """Standard output cannot be written: a full disk, say."""


class ClosedPipeError(OutputError):
    """Standard output is a pipe whose reader has gone, as `head` does: nobody is left who could be told."""

    exit_code = 128 + signal.SIGPIPE

    def __init__(self) -> None:
        super().__init__("")


class InterruptedCommandError(PairREError):
    """Ctrl-C ended a command."""

    exit_code = 128 + signal.SIGINT


class MissingExtraError(PairREError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional package: pip install 'pairre[{extra}]'")


def suggest(wrong: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest known word, or an empty string."""
    nearest = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{nearest[0]}'?" if nearest else ""
