"""The command `report`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from pairre.analysis.report import Method, Say, check_paths, write_report
from pairre.cli.console import err, open_run
from pairre.cli.options import Device, RunArgument
from pairre.graph import Split


def command(
    run: RunArgument,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page to write, e.g. `report.html`.")],
    split: Annotated[Split, typer.Option(help="Which triples are ranked.")] = "test",
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write each figure as PNG and SVG into this folder.")
    ] = None,
    layout: Annotated[
        Method, typer.Option("--map", help="How entities are laid out; `tsne` needs the extra `plots`.")
    ] = "pca",
    force: Annotated[bool, typer.Option("--force", help="Write over a page that exists.")] = False,
    device: Device = "auto",
) -> None:
    """Write one page about a run that opens offline: curves, metrics, relations, patterns, a map of entities.

    Patterns of relations are read off the vectors of PairRE and off the training triples, side by side.

    Examples:

        pairre report runs/atlas --out report.html

        pairre report runs/atlas --out report.html --figures figures --map tsne
    """
    check_paths(out, figures, force)
    opened = open_run(run, device)
    with _stages(err) as say:
        files = write_report(opened, out, split=split, figures=figures, method=layout, force=force, say=say)
    print(f"The report is in {out}.")
    if figures is not None:
        print(f"{len(files) - 1} figures are in {figures}.")


@contextmanager
def _stages(err: Console) -> Iterator[Say]:
    """What goes on: one line that changes on a terminal, a line for each stage elsewhere."""
    before = ""
    if err.is_terminal:
        with err.status("") as status:
            yield lambda what, share: status.update(Text(f"{what} {share:.0%}" if share else what))
        return

    def say(what: str, _: float) -> None:
        nonlocal before
        if what != before:
            err.print(what, highlight=False, markup=False, soft_wrap=True)
        before = what

    yield say
