"""The command `models`."""

from __future__ import annotations

from typing import Annotated

import typer

from pairre.cli import tables
from pairre.cli.console import out

_MAX_IDS = 2**31 - 1


def command(
    entities: Annotated[
        int, typer.Option(min=1, max=_MAX_IDS, help="Entities of the graph to count parameters for.")
    ] = 14_541,
    relations: Annotated[int, typer.Option(min=1, max=_MAX_IDS, help="Its relations.")] = 237,
    dim: Annotated[int, typer.Option(min=1, max=1_000_000, help="Features of an entity vector, as model.dim.")] = 200,
) -> None:
    """List the models: score, number of parameters on a graph of given sizes, patterns, paper.

    Train one with `--set model.name=NAME`. The sizes are FB15k-237's unless given. A model can express the patterns
    with a tick: symmetry, antisymmetry, inverse, composition, subrelation.

    Examples:

        pairre models

        pairre models --entities 100000 --relations 50 --dim 100
    """
    from pairre.models import models

    out.print(tables.models_table(models(), (entities, relations, dim)))
