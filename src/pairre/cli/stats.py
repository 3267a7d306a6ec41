"""The command `stats`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pairre.cli import tables
from pairre.cli.console import out
from pairre.cli.options import Columns, Delimiter, GraphArgument, Header, Shares, SplitSeed, read_graph
from pairre.graph.statistics import graph_statistics


def command(
    graph: GraphArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with every relation.")] = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    split: Shares = "90/5/5",
    split_seed: SplitSeed = 0,
) -> None:
    """Show what a graph is like: sizes, faults, relation categories, the most frequent relations.

    Examples:

        pairre stats atlas

        pairre stats my-triples.csv --columns from,type,to

        pairre stats fb15k-237 --json
    """
    statistics = graph_statistics(read_graph(graph, columns, header, delimiter, split, split_seed))
    if as_json:
        print(json.dumps(statistics.as_dict(), indent=2, ensure_ascii=False))
    else:
        out.print(*tables.statistics_tables(statistics), sep="\n")
