"""The command `calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pairre.cli.options import Columns, Delimiter, Device, Header, RunArgument, Verify, triple_layout


def command(
    run: RunArgument,
    base_rate: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Share of true triples among those that are judged, e.g. 0.5. Default: as among answers."
        ),
    ] = None,
    negatives: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Triples that are known to be false, as plausible as true ones.")
    ] = None,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Fit the curve that turns scores into probabilities again, on the validation split, and store it with the run.

    `train` does that when it ends. A probability refers to a base rate: without --base-rate it is the share of true
    triples among the ten best new answers to the queries of the validation split. --negatives takes triples that are
    known to be false instead of answers that are only unknown.

    Examples:

        pairre calibrate runs/atlas

        pairre calibrate runs/atlas --base-rate 0.5

        pairre calibrate runs/atlas --negatives checked-and-false.tsv
    """
    from pairre.cli.console import echo, open_run, progress_bar
    from pairre.evaluation import calibrate
    from pairre.evaluation.calibration import describe_calibration

    layout = triple_layout(columns, header, delimiter)
    opened = open_run(run, device, verify)
    with progress_bar("scoring answers", 2 * len(opened.graph.valid) * opened.graph.num_entities) as advance:
        fitted = calibrate(opened, base_rate=base_rate, negatives=negatives, layout=layout, progress=advance)
    echo(describe_calibration(fitted))
