"""Find the recipe of a run. Three layers, later wins: defaults for the graph, a recipe, `key=value` overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from pairre.graph import Graph
from pairre.models import model_class
from pairre.settings.parse import from_values, override
from pairre.settings.recipe import LossRecipe, Recipe, SamplingRecipe, TrainRecipe
from pairre.settings.shipped import shipped_values
from pairre.settings.validate import validate
from pairre.support.errors import RecipeError


def resolve(
    graph: Graph,
    recipe: str | Path | Recipe | None = None,
    overrides: Iterable[str] = (),
    *,
    with_rules: bool = False,
) -> Recipe:
    """Return the validated recipe of a run: defaults for this graph, or a recipe, file or name; then the overrides."""
    if recipe is None:
        base = default_recipe(graph)
    elif isinstance(recipe, Recipe):
        base = recipe
    else:
        base = load_recipe(recipe)
    resolved = override(base, overrides)
    validate(resolved, graph, model_class(resolved.model.name), with_rules=with_rules)
    return resolved


def default_recipe(graph: Graph) -> Recipe:
    """Return settings for a graph that nobody has tuned, from its size alone."""
    num_train = len(graph.train)
    small, medium = num_train < 20_000, num_train < 200_000
    return Recipe(
        loss=LossRecipe(margin=6.0 if small else 9.0, subsampling=False, query_balance=0.5),
        sampling=SamplingRecipe(negatives=min(256, graph.num_entities)),
        train=TrainRecipe(
            batch=min(1024, num_train),
            steps=3_000 if small else 10_000 if medium else 30_000,
            lr=3e-3 if medium else 1e-3,
            schedule="linear",
            update_rows="all" if graph.num_entities <= 50_000 else "touched",
        ),
    )


def load_recipe(source: str | Path) -> Recipe:
    """Return a recipe from a TOML file, or by the name of one that comes with the package."""
    path = Path(source)
    if path.is_file():
        return _read(path)
    values = shipped_values(str(source))
    try:
        return from_values(values)
    except RecipeError as error:
        raise RecipeError(f"recipe {source}: {error}") from None


def load_stored_recipe(path: Path) -> Recipe:
    """Return the recipe of a run folder, which may use old key names and losses that no loaded module defines.

    Opening a run never imports code by itself, so a model from outside the package must have been loaded before.
    """
    recipe = _read(path, stored=True)
    try:
        model_class(recipe.model.name)
    except RecipeError:
        raise RecipeError(
            f"{path}: this run uses the model '{recipe.model.name}', which no loaded module defines; "
            "pass the plug-in that defines it with --plugin"
        ) from None
    return recipe


def _read(path: Path, *, stored: bool = False) -> Recipe:
    try:
        values = tomllib.loads(path.read_bytes().decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: not valid TOML: {error}") from error
    try:
        return from_values(values, stored=stored)
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from None
