"""What commands share: the two consoles, opening a run, progress bars, lines that can be copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from pairre.runs import Run, load_run

out, err = Console(), Console(stderr=True)


def open_run(path: Path, device: str) -> Run:
    """Return the run of a folder, with a spinner while it loads."""
    with err.status(f"opening {path}"):
        return load_run(path, device)


@contextmanager
def progress_bar(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """Show a bar on a terminal and nothing elsewhere; yield the function that advances it."""
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda amount: bar.advance(task, amount)


def say(text: str, console: Console | None = None) -> None:
    """Print a line as it is, never wrapped, so that it can be copied; to standard output unless a console is given."""
    (console or out).print(text, highlight=False, markup=False, soft_wrap=True)
