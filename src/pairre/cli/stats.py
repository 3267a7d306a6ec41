"""The command `stats`."""

from __future__ import annotations

from typing import Annotated

import typer

from pairre.cli import tables
from pairre.cli.console import echo, echo_json, out
from pairre.cli.options import Columns, Delimiter, GraphArgument, Header, Shares, SplitSeed, Unverified, read_graph
from pairre.cli.source_options import NO_OPTIONS, SourceOptions, with_source_options


@with_source_options
def command(
    graph: GraphArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with every relation.")] = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    split: Shares = "90/5/5",
    split_seed: SplitSeed = 0,
    unverified: Unverified = False,
    source: SourceOptions = NO_OPTIONS,
) -> None:
    """Show what a graph is like: sizes, faults, relation categories, the most frequent relations.

    Examples:

        pairre stats atlas

        pairre stats my-triples.csv --columns from,type,to

        pairre stats fb15k-237 --json

        pairre stats building.ttl --exclude rdf:type
    """
    from pairre.graph.leakage import describe_leakage
    from pairre.graph.statistics import graph_statistics

    loaded = read_graph(graph, columns, header, delimiter, split, split_seed, unverified, source)
    statistics = graph_statistics(loaded)
    if as_json:
        echo_json(statistics.as_dict())
    else:
        out.print(*tables.statistics_tables(statistics, loaded), sep="\n")
        if weights := statistics.weights:
            echo("weights in train: " + ", ".join(f"{name} {value:g}" for name, value in weights.items()))
        for name, found in statistics.leakage.items():
            if line := describe_leakage(found, name) or found.get("skipped", ""):
                echo(line)
