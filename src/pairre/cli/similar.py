"""The command `similar`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pairre.cli import reason_tables as tables
from pairre.cli.console import echo_json, open_run, out, progress_bar
from pairre.cli.options import Device, RunArgument, Verify
from pairre.support.errors import PairREError


def command(
    run: RunArgument,
    entity: Annotated[str | None, typer.Argument(metavar="[ENTITY]", help="Whose neighbours to list.")] = None,
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="List pairs with nearly the same vector, of all entities.")
    ] = False,
    clusters: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Divide all entities into N clusters.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many neighbours, pairs, or members of a cluster.")] = 10,
    threshold: Annotated[
        float, typer.Option(min=-1, max=1, help="The least similarity of a pair of `--duplicates`.")
    ] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; of clusters, with every member.")] = False,
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """List entities with similar vectors: those nearest to one, pairs that may be duplicates, or clusters of all.

    Similarity is the cosine of vectors as the score uses them, from -1 to 1.

    Examples:

        pairre similar runs/atlas France

        pairre similar runs/atlas --duplicates --threshold 0.9

        pairre similar runs/atlas --clusters 20 -k 5
    """
    from pairre.inference import neighbours

    if sum((entity is not None, duplicates, clusters is not None)) != 1:
        raise PairREError("give one of: the name of an entity, --duplicates, --clusters N")
    opened = open_run(run, device, verify, together=True)
    if entity is not None:
        found = neighbours.similar(opened, entity, k=k)
        rows, table = [asdict(one) for one in found], tables.neighbours_table(found, opened.graph)
    elif duplicates:
        with progress_bar("comparing", 1) as advance:
            pairs = neighbours.duplicates(opened, threshold=threshold, k=k, progress=advance)
        rows, table = [asdict(pair) for pair in pairs], tables.duplicates_table(pairs, opened.graph)
    else:
        assert clusters is not None
        with progress_bar("clustering", 1) as advance:
            groups = neighbours.clusters(opened, clusters, progress=advance)
        rows, table = [asdict(group) for group in groups], tables.clusters_table(groups, opened.graph, k)
    if as_json:
        echo_json(rows)
    else:
        out.print(table)
