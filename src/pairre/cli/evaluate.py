"""The command `evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pairre.cli import tables
from pairre.cli.console import echo, echo_json, err, open_run, out, progress_bar
from pairre.cli.options import (
    By,
    Columns,
    Delimiter,
    Device,
    Force,
    Header,
    RunArgument,
    SkipUnknown,
    Split,
    Verify,
    triple_layout,
)
from pairre.support.files import check_new_file, write_json


def command(
    run: RunArgument,
    split: Annotated[Split, typer.Option(help="Which triples are ranked.")] = "test",
    by: Annotated[By, typer.Option(help="Break the metrics down.")] = "side",
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rank the triples of a file in place of those of a split.")
    ] = None,
    plausible: Annotated[
        bool, typer.Option("--plausible", help="Rank among the entities that `pairre predict` considers, too.")
    ] = False,
    skip_unknown: SkipUnknown = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write them as JSON; - prints.")
    ] = None,
    force: Force = False,
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Rank each triple of a split among all heads and all tails, other known triples left out.

    Ties count as the mean of the best and the worst rank; both extremes and a 95% bootstrap interval are shown beside.

    Examples:

        pairre evaluate runs/atlas

        pairre evaluate runs/atlas --by relation --split valid

        pairre evaluate runs/atlas --json metrics.json

        pairre evaluate runs/atlas --file mine.tsv --plausible
    """
    from pairre.evaluation import evaluate
    from pairre.graph.leakage import describe_leakage
    from pairre.graph.lookup import find_triples

    to_stdout = json_file == Path("-")
    if json_file is not None and not to_stdout:
        check_new_file(json_file, force=force)
    layout = triple_layout(columns, header, delimiter)
    opened = open_run(run, device, verify, together=True)
    graph = opened.graph
    found = None if file is None else find_triples(graph, file, layout, skip_unknown=skip_unknown)
    num_triples = len(graph.split(split) if found is None else found.triples)
    with progress_bar("ranking", 2 * num_triples * graph.num_entities * (2 if plausible else 1)) as advance:
        result = evaluate(opened, split, by, advance, triples=found, plausible=plausible)
    if found is not None and found.num_unknown:
        echo(f"Rows skipped for unknown names: {found.num_unknown:,}.", err)
    if to_stdout:
        echo_json(result)
        return
    if json_file is not None and opened.writes:
        write_json(json_file, result)
    out.print(*tables.evaluation_tables(result), sep="\n")
    if line := describe_leakage(result.get("leakage", {}), split):
        echo(line)
