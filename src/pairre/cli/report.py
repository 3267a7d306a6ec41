"""The command `report`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairre.cli.console import echo, err, open_run
from pairre.cli.options import Device, Force, Layout, RunArgument, Split, Verify
from pairre.support.terminal import Text
from pairre.support.text import visible

if TYPE_CHECKING:
    from pairre.analysis.report import Notify


def command(
    run: RunArgument,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page to write, e.g. `report.html`.")],
    split: Annotated[Split, typer.Option(help="Which triples are ranked.")] = "test",
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write each figure as PNG and SVG into this folder.")
    ] = None,
    layout: Annotated[
        Layout, typer.Option("--map", help="How entities are laid out; `tsne` needs the extra `plots`.")
    ] = "pca",
    force: Force = False,
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Write one page about a run that opens offline: curves, metrics, relations, patterns, a map of entities.

    Patterns of relations are read off the vectors of PairRE and off the training triples, side by side.

    Examples:

        pairre report runs/atlas --out report.html

        pairre report runs/atlas --out report.html --figures figures --map tsne
    """
    from pairre.analysis.report import check_paths, write_report

    check_paths(out, figures, force)
    opened = open_run(run, device, verify)
    with _stages() as notify:
        files = write_report(opened, out, split=split, figures=figures, method=layout, force=force, notify=notify)
    echo(f"The report is in {out}.")
    if figures is not None:
        echo(f"{len(files) - 1} figures are in {figures}.")


@contextmanager
def _stages() -> Iterator[Notify]:
    """Show what goes on: one line that changes on a terminal, a line for each stage elsewhere."""
    before = ""
    if err.is_terminal:
        with err.status("") as status:
            yield lambda what, share: status.update(Text(visible(f"{what} {share:.0%}" if share else what)))
        return

    def note(what: str, _: float) -> None:
        nonlocal before
        if what != before:
            echo(what, err)
        before = what

    yield note
