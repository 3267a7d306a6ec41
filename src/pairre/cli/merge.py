"""The command `merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pairre.cli.console import echo, open_run
from pairre.cli.options import Device, Verify
from pairre.support.text import shell_word


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders of PairRE on one graph.")],
    folder: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder to make.")],
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Merge runs of PairRE, say of several seeds, into one whose scores are the mean of theirs.

    That is mostly better than each. Vectors are set side by side, so the result is a run of PairRE like any other, as
    large as all of them together: evaluate it, query it, report on it.

    Example:

        pairre merge runs/fb/seed-0 runs/fb/seed-1 --out runs/fb/merged
    """
    from pairre.evaluation import calibration_of
    from pairre.runs import RunFolder, merge

    RunFolder.check_free(folder)
    merged = merge([open_run(run, device, verify) for run in runs])
    calibration_of(merged)  # its scores have probabilities of their own, which are stored with it
    merged.save(folder)
    echo(f"The run is in {folder}, {merged.model.dim:,} features. Next:")
    graph = merged.graph
    if ranked := next((split for split in ("test", "valid") if len(graph.split(split))), None):
        echo(f"  pairre evaluate {shell_word(folder)}{' --split valid' * (ranked == 'valid')}")
