"""The command `score`."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from pairre.cli import tables
from pairre.cli.console import echo, echo_json, err, note_newer, open_run, out, progress_bar
from pairre.cli.options import (
    Columns,
    Delimiter,
    Device,
    Force,
    Header,
    RunArgument,
    SkipUnknown,
    Verify,
    triple_layout,
)
from pairre.support.terminal import standard_output

Format = Literal["table", "json", "csv"]
Sides = Literal["both", "head", "tail", "none"]


def command(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of triples, as `pairre train` reads them.")],
    side: Annotated[Sides, typer.Option(help="Which ranks to compute; `none` is the fastest.")] = "both",
    output: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write them: .csv, .tsv, .json, .jsonl or .parquet.")
    ] = None,
    force: Force = False,
    skip_unknown: SkipUnknown = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    format: Annotated[Format, typer.Option(help="How to print them without --out.")] = "table",
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Score given triples: score, rank among all heads and tails, percentile, probability, and the split they are in.

    A probability refers to a share of true triples, its base rate, which stands beside it; `pairre calibrate` sets it.

    Examples:

        pairre score runs/atlas claims.tsv

        pairre score runs/atlas claims.csv --columns from,type,to --skip-unknown --out scores.parquet
    """
    from pairre.graph.lookup import find_triples
    from pairre.inference.score import num_scores, score, write_scores
    from pairre.support.table_files import check_table_file

    if output is not None:
        check_table_file(output, force=force)
    layout = triple_layout(columns, header, delimiter)
    opened = open_run(run, device, verify, together=True)
    found = find_triples(opened.graph, file, layout, skip_unknown=skip_unknown)
    with progress_bar("scoring", num_scores(opened, found, side)) as advance:
        if output is not None:
            write_scores(opened, found, output, side, advance)
        else:
            scores = score(opened, found, side=side, progress=advance)
    if found.num_unknown:
        echo(f"Rows skipped for unknown names: {found.num_unknown:,}.", err)
    note_newer(opened, None if output is not None else scores)
    if output is not None:
        echo(f"{len(found.triples):,} scores are in {output}.")
        return
    rows = [asdict(s) for s in scores]
    if format == "json":
        echo_json(rows)
    elif format == "csv":
        writer = csv.DictWriter(standard_output, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        out.print(tables.scores_table(scores, opened.graph))
