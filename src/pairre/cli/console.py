"""What commands share: the two consoles, opening a run, progress bars, lines that can be copied, JSON."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairre.support.terminal import (
    BarColumn,
    Console,
    TaskProgressColumn,
    TimeRemainingColumn,
    progress,
    standard_output,
)
from pairre.support.text import json_text

if TYPE_CHECKING:
    from pairre.runs import Run

out, err = Console(), Console(stderr=True)


def open_run(path: Path, device: str, verify: bool) -> Run:
    """Return the run of a folder, with a spinner while it loads; a note says if it was not trained to its end."""
    from pairre.runs import load_run

    with err.status(f"opening {path}"):
        run = load_run(path, device, verify=verify)
    if run.unfinished:
        logging.getLogger("pairre").warning("%s", run.unfinished)
    return run


@contextmanager
def progress_bar(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """Show a bar on a terminal and nothing elsewhere; yield the function that advances it."""
    with progress(err, BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(what, total=total)
        yield lambda amount: bar.advance(task, amount)


def echo(text: str, console: Console | None = None) -> None:
    """Print one line, never wrapped, so that it can be copied; to standard output unless a console is given."""
    (console or out).print_line(text)


def echo_json(value: Any) -> None:
    """Print a value as JSON on standard output: exact names, no number that is not finite."""
    standard_output.write(json_text(value) + "\n")
