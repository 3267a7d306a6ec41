"""The command `merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pairre.cli.console import open_run, say
from pairre.cli.options import Device
from pairre.runs import RunFolder, merge


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders of PairRE on one graph.")],
    folder: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder to make.")],
    device: Device = "auto",
) -> None:
    """Merge runs of PairRE, say of several seeds, into one whose scores are the mean of theirs.

    That is mostly better than each. Vectors are set side by side, so the result is a run of PairRE like any other, as
    large as all of them together: evaluate it, query it, report on it.

    Example:

        pairre merge runs/fb/seed-0 runs/fb/seed-1 --out runs/fb/merged
    """
    RunFolder.check_free(folder)
    merged = merge([open_run(run, device) for run in runs])
    merged.save(folder)
    say(f"The run is in {folder}, {merged.model.dim:,} features. Next:")
    say(f"  pairre evaluate {folder}")
