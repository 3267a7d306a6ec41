"""The command `ingest`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pairre.cli.console import echo, progress_bar
from pairre.cli.options import Columns, Delimiter, Header, Shares, SplitSeed, read_layout, read_shares
from pairre.support.text import shell_word


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A file, a folder of parts or with train/valid/test, or a quoted glob: .tsv .txt .csv .nt, each also "
            ".gz or .zst, or .parquet.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="GRAPH", help="The folder to make; every command takes it as GRAPH.")],
    memory: Annotated[
        str | None, typer.Option(help="Memory to use, such as 2GB; half of what is free by default.")
    ] = None,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    weights: Annotated[
        str | None, typer.Option(metavar="none", help="`none` leaves a column titled `weight` alone.")
    ] = None,
    keep_blank: Annotated[bool, typer.Option("--keep-blank", help="Keep blank nodes and lists of N-Triples.")] = False,
    split: Shares = "90/5/5",
    split_seed: SplitSeed = 0,
) -> None:
    """Write triples that need not fit into memory as a graph on disk, which every command takes as GRAPH.

    Needs the extra `big` (DuckDB). Beside what GRAPH takes, about as much disk again is used while it is made.
    A command that was stopped leaves nothing, or what the same command removes when it begins anew.

    Examples:

        pairre ingest dump.tsv.gz --out graphs/dump --memory 2GB

        pairre ingest 'parts/*.parquet' --out graphs/parts --columns subject,predicate,object

        pairre ingest dump.nt.zst --out graphs/rdf --split 99.98/0.01/0.01
    """
    from pairre.graph.ingest.ingest import ingest

    layout = read_layout(columns, header, delimiter)
    with progress_bar(f"reading {source}", 1.0) as advance:
        path = ingest(
            source,
            out,
            memory=memory,
            **layout,
            weights=weights,
            keep_blank=keep_blank,
            split=read_shares(split),
            seed=split_seed,
            progress=advance,
        )
    about = json.loads((path / "graph.json").read_text(encoding="utf-8"))
    sizes = " / ".join(f"{number:,}" for number in about["num_triples"].values())
    echo(f"{about['num_entities']:,} entities, {about['num_relations']:,} relations, {sizes} triples")
    if about["num_repeated"]:
        echo(f"left out: {about['num_repeated']:,} repeated triples")
    for what, number in about["skipped"].items():
        echo(f"skipped: {number:,} triples of {what}")
    echo(f"The graph is in {out}. Next:")
    echo(f"  pairre train {shell_word(out)} --out RUN")
