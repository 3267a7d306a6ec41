"""The command `recipes`."""

from __future__ import annotations

from typing import Annotated

import typer

from pairre.cli import tables
from pairre.cli.console import out
from pairre.support.terminal import standard_output


def command(
    name: Annotated[str | None, typer.Argument(help="Print this recipe whole, as TOML.")] = None,
) -> None:
    """List the recipes of graphs, the presets of models, and every key that a recipe may set.

    Examples:

        pairre recipes

        pairre recipes fb15k-237

        pairre recipes fb15k-237/complex > mine.toml
    """
    from pairre.settings import graph_recipes, keys, load_recipe, presets

    if name is not None:
        standard_output.write(load_recipe(name).to_toml())
        return
    out.print(
        tables.recipes_table("graph recipes", graph_recipes()),
        tables.recipes_table("presets of models", presets()),
        tables.keys_table(keys()),
        sep="\n",
    )
