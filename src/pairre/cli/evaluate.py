"""The command `evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pairre.cli import tables
from pairre.cli.console import open_run, out, progress_bar
from pairre.cli.options import Device, RunArgument
from pairre.evaluation import By, evaluate
from pairre.graph import Split
from pairre.support.files import write_json


def command(
    run: RunArgument,
    split: Annotated[Split, typer.Option(help="Which triples are ranked.")] = "test",
    by: Annotated[By, typer.Option(help="Break the metrics down.")] = "side",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write them as JSON; - prints.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Rank each triple of a split among all heads and all tails, other known triples left out.

    Ties count as the mean of the best and the worst rank; both extremes and a 95% bootstrap interval are shown beside.

    Examples:

        pairre evaluate runs/atlas

        pairre evaluate runs/atlas --by relation --split valid

        pairre evaluate runs/atlas --json metrics.json
    """
    opened = open_run(run, device)
    total = 2 * len(opened.graph.split(split)) * opened.graph.num_entities
    with progress_bar("ranking", total) as advance:
        result = evaluate(opened, split, by, advance)
    if json_file == Path("-"):
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    if json_file is not None:
        write_json(json_file, result)
    out.print(*tables.evaluation_tables(result), sep="\n")
