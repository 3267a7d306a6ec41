"""Standard output and standard error: the only place that uses rich, so that text from outside is shown as text.

Markup, emoji codes and highlighting are off everywhere, and control characters are made visible. Where standard error
cannot be written to, messages are lost and the work goes on; where standard output cannot, an OutputError says so.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Any, cast

from rich import console as rich_console
from rich import table as rich_table
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from pairre.support.errors import ClosedPipeError, OutputError
from pairre.support.reading import shortened
from pairre.support.text import visible, visible_lines

__all__ = [
    "BarColumn",
    "Console",
    "DownloadColumn",
    "Live",
    "MofNCompleteColumn",
    "Progress",
    "Table",
    "TaskProgressColumn",
    "Text",
    "TimeRemainingColumn",
    "TransferSpeedColumn",
    "progress",
    "standard_output",
]

_MAX_CELL = 300  # characters of a cell in a table


class _Stream(io.TextIOBase):
    """The standard stream of a name, as it is at the time of writing; subclasses decide what a failure means."""

    def __init__(self, name: str) -> None:
        self.stream_name = name

    @property
    def stream(self) -> IO[str] | None:
        """The stream of Python, or None if the process was started without one."""
        stream = getattr(sys, self.stream_name)
        return cast("IO[str] | None", getattr(stream, "rich_proxied_file", stream))

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream."""
        return getattr(self.stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        with suppress(OSError, ValueError):
            return self.stream is not None and self.stream.isatty()
        return False

    def fileno(self) -> int:
        """Return the number of the file."""
        if self.stream is None:
            raise OSError("there is no such stream")
        return self.stream.fileno()

    def write(self, text: str) -> int:
        """Write text to the stream."""
        try:
            if self.stream is not None:
                self.stream.write(text)
        except (OSError, ValueError) as error:
            self.failed(error)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        try:
            if self.stream is not None:
                self.stream.flush()
        except (OSError, ValueError) as error:
            self.failed(error)

    def failed(self, error: OSError | ValueError) -> None:  # noqa: ARG002
        """Redirect the stream to nowhere, so that what is left in its buffer does not fail when the process exits."""
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


class _StandardOutput(_Stream):
    """Standard output, where a failed write is an OutputError."""

    def failed(self, error: OSError | ValueError) -> None:
        """Raise an OutputError."""
        super().failed(error)
        if isinstance(error, BrokenPipeError):
            raise ClosedPipeError from error
        raise OutputError(f"standard output: cannot be written: {getattr(error, 'strerror', error)}") from error


standard_output = _StandardOutput("stdout")


class Console(rich_console.Console):
    """A console that shows text as it is, with control characters made visible; line breaks are kept."""

    def __init__(self, *, stderr: bool = False, file: IO[str] | None = None) -> None:
        stream = file or cast("IO[str]", _Stream("stderr") if stderr else standard_output)
        super().__init__(file=stream, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a str, be it printed or a cell, as text without markup."""
        options |= {"markup": False, "emoji": False, "highlight": False, "highlighter": None}
        return super().render_str(visible_lines(text), **options)

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        """Yield the segments of anything that can be printed, such as a Text, with control characters made visible."""
        for segment in super().render(*arguments, **options):
            yield segment if segment.control else segment._replace(text=visible_lines(segment.text))

    def status(self, status: Any, **options: Any) -> Status:
        """Return a spinner with a line of text beside it."""
        return super().status(Text(visible(status)) if isinstance(status, str) else status, **options)

    def print_line(self, text: str, style: str | None = None) -> None:
        """Print a text as one line, never wrapped, so that it can be copied."""
        self.print(visible(text), soft_wrap=True, style=style)


class Table(rich_table.Table):
    """A table whose cells are text on one line, cut in the middle where it would fill the screen."""

    @classmethod
    def grid(cls, *arguments: Any, **options: Any) -> Table:
        """Return a table without a header, a box and padding."""
        return cast("Table", super().grid(*arguments, **options))

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row of cells; control characters in a str are made visible, line breaks too."""
        texts = (shortened(visible(cell), _MAX_CELL) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*texts, **options)


class _Description(ProgressColumn):
    """The description of a task, as text."""

    def render(self, task: Task) -> Text:
        """Return the description on one line."""
        return Text(visible(task.description))


def progress(
    console: Console, *columns: ProgressColumn, transient: bool = True, disable: bool | None = None
) -> Progress:
    """Return a progress bar whose first column is the description of the task; it is shown on a terminal only."""
    hidden = not console.is_terminal if disable is None else disable
    return Progress(_Description(), *columns, console=console, transient=transient, disable=hidden)
