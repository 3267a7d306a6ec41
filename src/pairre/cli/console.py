"""What commands share: the two consoles, opening a run, progress bars, lines that can be copied, JSON."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairre.support.errors import PairREError
from pairre.support.interrupts import check_interrupt
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


def open_run(path: Path, device: str, verify: bool, *, together: bool = False) -> Run:
    """Return the run of a folder, with a spinner while it loads; a note says if it was not trained to its end.

    Where torchrun has started several processes, a command that works `together` has each of them open its share of
    the rows, and only the first shows anything; other commands are refused.
    """
    from pairre.runs import load_run
    from pairre.support.processes import join_processes, place

    here = place()
    if here and not together:
        raise PairREError(f"this command works in one process, and there are {here.size}: leave out torchrun")
    if here and here.rank > 0:
        out.quiet = err.quiet = True
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    with err.status(f"opening {path}"):
        run = load_run(path, device, verify=verify, processes=join_processes())
    if run.unfinished:
        logging.getLogger("pairre").warning("%s", run.unfinished)
    return run


@contextmanager
def progress_bar(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """Show a bar on a terminal and nothing elsewhere; yield the function that advances it."""
    with progress(err, BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(what, total=total)

        def advance(amount: float) -> None:
            check_interrupt()
            bar.advance(task, amount)

        yield advance


def note_newer(run: Run, rows: Iterable[Any] | None = None) -> None:
    """Say that rows have no probability because of entities that came with `extend`; rows in a file may be such."""
    if run.num_trained == run.graph.num_entities:
        return
    if rows is None or any(row.probability is None and row.base_rate is not None for row in rows):
        newer = f"{run.graph.num_entities - run.num_trained:,} entities that came with `pairre extend`"
        echo(f"What is about the {newer} has no probability: none was fitted for them.", err)


def echo(text: str, console: Console | None = None) -> None:
    """Print one line, never wrapped, so that it can be copied; to standard output unless a console is given."""
    (console or out).print_line(text)


def echo_json(value: Any) -> None:
    """Print a value as JSON on standard output: exact names, no number that is not finite."""
    standard_output.write(json_text(value) + "\n")
