"""The command `predict`."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import asdict
from typing import Annotated, Literal

import typer

from pairre.cli import tables
from pairre.cli.console import open_run, out
from pairre.cli.options import Device, RunArgument
from pairre.inference import predict

Format = Literal["table", "json", "csv"]


def command(
    run: RunArgument,
    head: Annotated[str | None, typer.Option(help="Name of the head entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="Name of the relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Name of the tail entity.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many answers.", min=1)] = 10,
    known: Annotated[bool, typer.Option("--known/--no-known", help="Keep triples the graph has, marked.")] = False,
    format: Annotated[Format, typer.Option(help="How to print them.")] = "table",
    device: Device = "auto",
) -> None:
    """Name the most plausible tails of a head and relation, heads of a relation and tail, or relations of a pair.

    Examples:

        pairre predict runs/atlas --head France --relation borders

        pairre predict runs/atlas --relation capital_of --tail Peru --known

        pairre predict runs/atlas --head Toulouse --tail France -k 3 --format json
    """
    answers = predict(open_run(run, device), head=head, relation=relation, tail=tail, k=k, known=known)
    rows = [asdict(answer) for answer in answers]
    if format == "json":
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    elif format == "csv":
        writer = csv.DictWriter(sys.stdout, ["rank", "head", "relation", "tail", "score", "known"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        out.print(tables.predictions_table(answers))
