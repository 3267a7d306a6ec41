"""Show the progress of training: a live panel on a terminal, plain lines elsewhere, TensorBoard files on request."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pairre.evaluation.metrics import BREAKDOWN_METRICS, METRICS
from pairre.graph import Graph
from pairre.settings.recipe import Recipe
from pairre.support.errors import MissingExtraError
from pairre.support.terminal import (
    BarColumn,
    Console,
    Live,
    MofNCompleteColumn,
    Table,
    Text,
    TimeRemainingColumn,
    progress,
)

log = logging.getLogger("pairre")


class Display:
    """A display that shows nothing; the others override what they show."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def resumed(self, step: int) -> None:
        """Show that training continues after a step."""

    def report(self, entry: dict[str, Any]) -> None:
        """Show an entry of the log."""

    def notify(self, text: str) -> None:
        """Show what is being done."""

    def announce(self, text: str) -> None:
        """Show a remark that stays."""


class PlainDisplay(Display):
    """Plain lines, for files and pipes: every validation, and a report every few seconds."""

    def __init__(self, console: Console, num_steps: int, title: str) -> None:
        self.console, self.num_steps = console, num_steps
        self._title, self._last = title, time.monotonic()

    def __enter__(self) -> Self:
        self.notify(self._title)
        return self

    def resumed(self, step: int) -> None:
        """Print where training continues."""
        self.notify(f"resumed after step {step:,}")

    def report(self, entry: dict[str, Any]) -> None:
        """Print every validation, and the loss every few seconds."""
        where = f"step {entry['step']:>7,}/{self.num_steps:,}"
        if "valid" in entry:
            best = " (best)" if entry["valid"]["mrr"] == entry["best_mrr"] else f" (best {entry['best_mrr']:.4f})"
            mrr, *others = (
                f"{METRICS[key].label} {METRICS[key].format(entry['valid'][key])}" for key in BREAKDOWN_METRICS
            )
            self.notify("  ".join([where, f"valid {mrr}{best}", *others]))
        elif time.monotonic() - self._last > 5:
            self._last = time.monotonic()
            self.notify(f"{where}  loss {entry['loss']:.4f}  {entry['triples_per_second']:,} triples/s")

    def notify(self, text: str) -> None:
        """Print a line."""
        self.console.print_line(text)

    def announce(self, text: str) -> None:
        """Print a line."""
        self.console.print_line(text)


class LiveDisplay(Display):
    """A progress bar with loss, speed, validation MRR, best so far and time left."""

    def __init__(self, console: Console, num_steps: int, title: str) -> None:
        remaining = TimeRemainingColumn(elapsed_when_finished=True)
        self._bar = progress(console, BarColumn(), MofNCompleteColumn(), remaining, transient=False)
        self._task = self._bar.add_task("training", total=num_steps)
        self.console, self._title = console, title
        self._values = {"loss": "–", "triples/s": "–", "valid MRR": "–", "best": "–"}
        self._live = Live(self._render(), console=console, refresh_per_second=8, redirect_stderr=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.notify("stopped" if error else "done")
        self._live.update(self._render())
        self._live.__exit__(kind, error, trace)

    def _render(self) -> Table:
        grid = Table.grid()
        grid.add_row(Text(self._title))
        grid.add_row(self._bar)
        grid.add_row(Text("   ").join(Text.assemble((name, "dim"), " ", v) for name, v in self._values.items()))
        return grid

    def resumed(self, step: int) -> None:
        """Start the bar where the run stopped."""
        self._bar.update(self._task, completed=step)

    def report(self, entry: dict[str, Any]) -> None:
        """Refresh the numbers."""
        self._bar.update(self._task, completed=entry["step"])
        if "valid" in entry:
            self._values |= {"valid MRR": f"{entry['valid']['mrr']:.4f}", "best": f"{entry['best_mrr']:.4f}"}
        else:
            self._values |= {"loss": f"{entry['loss']:.4f}", "triples/s": f"{entry['triples_per_second']:,}"}
        self._live.update(self._render())

    def notify(self, text: str) -> None:
        """Show what is being done beside the bar."""
        self._bar.update(self._task, description=text)

    def announce(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print_line(text)


class BoardDisplay(Display):
    """TensorBoard files beside another display; if they cannot be written, training goes on without them."""

    def __init__(self, other: Display, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("--tensorboard", "plots") from None
        self._other = other
        self._writer_class: Any = SummaryWriter
        self._folder = folder

    def __enter__(self) -> Self:
        self._writer: Any = None
        self._excepthook, threading.excepthook = threading.excepthook, self._ignore_disk_errors
        with self._giving_up():
            self._writer = self._writer_class(str(self._folder))  # makes the folder, so not before training starts
        self._other.__enter__()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._giving_up():
            if self._writer:
                self._writer.close()
        threading.excepthook = self._excepthook
        self._other.__exit__(kind, error, trace)

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Write no more files once one could not be written."""
        try:
            yield
        except OSError as error:
            self._writer = None
            log.warning("%s: %s; training goes on without TensorBoard files", self._folder, error.strerror or error)

    def _ignore_disk_errors(self, failure: threading.ExceptHookArgs) -> None:
        """Keep quiet about a disk error of the writer's thread, which its next call raises again."""
        if not isinstance(failure.exc_value, OSError):
            self._excepthook(failure)

    def resumed(self, step: int) -> None:
        """Pass it on to the other display."""
        self._other.resumed(step)

    def report(self, entry: dict[str, Any]) -> None:
        """Write the numbers of an entry as scalars."""
        values = {k: v for k, v in entry.items() if isinstance(v, float | int) and k not in ("step", "stopped_early")}
        values |= {f"valid/{k}": v for k, v in entry.get("valid", {}).items()}
        with self._giving_up():
            for name, value in values.items() if self._writer else ():
                self._writer.add_scalar(name, value, entry["step"])
        self._other.report(entry)

    def notify(self, text: str) -> None:
        """Pass it on to the other display."""
        self._other.notify(text)

    def announce(self, text: str) -> None:
        """Pass it on to the other display."""
        self._other.announce(text)


def make_display(graph: Graph, recipe: Recipe, place: str, board: Path | None, progress: bool) -> Display:
    """Return the display that fits standard error, with TensorBoard files under `board` if that is given.

    `place` says where training runs.
    """
    console = Console(stderr=True)
    title = f"{recipe.model.name} on {graph.name}: {recipe.model.dim} features, {place}; the first step compiles"
    display: Display = Display()
    if progress:
        kind = LiveDisplay if console.is_terminal else PlainDisplay
        display = kind(console, recipe.train.steps, title)
    if board is not None:
        display = BoardDisplay(display, board / "tensorboard")
    return display
