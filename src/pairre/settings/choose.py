"""Find the recipe of a run. Three layers, later wins: defaults for the graph, a recipe, `key=value` overrides."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from pairre.graph import Graph
from pairre.graph.graph import SIDES
from pairre.models import Ensemble, model_class
from pairre.settings.parse import Overrides, checked_recipe, from_values, override
from pairre.settings.recipe import LossRecipe, Recipe, SamplingRecipe, TrainRecipe
from pairre.settings.shipped import shipped_values
from pairre.settings.validate import validate
from pairre.support.errors import RecipeError
from pairre.support.reading import parse_toml, path_fault, read_text, shortened, shown


def resolve(
    graph: Graph,
    recipe: str | Path | Recipe | None = None,
    overrides: Overrides = (),
    *,
    with_rules: bool = False,
) -> Recipe:
    """Return the validated recipe of a run: defaults for this graph, or a recipe, file or name; then the overrides."""
    if recipe is None:
        base = default_recipe(graph)
    elif isinstance(recipe, Recipe):
        base = checked_recipe(recipe)
    else:
        base = load_recipe(recipe)
    resolved = _count_steps(override(base, overrides), graph)
    validate(resolved, graph, model_class(resolved.model.name), with_rules=with_rules)
    return resolved


def _count_steps(recipe: Recipe, graph: Graph) -> Recipe:
    """Return the recipe with the steps of its epochs, if it says how many."""
    train = recipe.train
    if not train.epochs:
        return recipe
    weights = graph.weights.get("train")  # a triple of weight 0 is no positive
    num_positives = [len(graph.train) if weights is None else int((weights > 0).sum())] * 2
    if recipe.loss.name == "k-vs-all":  # an epoch has every query once
        num_positives = [len(graph.known_train.side(side).pair_keys) for side in SIDES]
    batch = min(train.batch, *num_positives)
    return replace(recipe, train=replace(train, steps=train.epochs * sum(-(-num // batch) for num in num_positives)))


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
    if fault := path_fault(path):
        raise RecipeError(f"{shown(path)}: {fault}")
    if os.path.lexists(path) and (path.suffix == ".toml" or not path.is_dir()):
        return _read(path)
    values = shipped_values(shortened(source))
    try:
        return from_values(values)
    except RecipeError as error:
        raise RecipeError(f"recipe {source}: {error}") from None


def load_stored_recipe(path: Path) -> Recipe:
    """Return the recipe of a run folder, which may use old key names and losses that no loaded module defines.

    Opening a run never imports code by itself, so a model from outside the package must have been loaded before.
    """
    recipe = _read(path, stored=True)
    if recipe.model.name == Ensemble.name:
        return recipe
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
        values = parse_toml(read_text(path, RecipeError))
    except ValueError as error:
        raise RecipeError(f"{path}: not valid TOML: {error}") from error
    try:
        return from_values(values, stored=stored)
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from None
