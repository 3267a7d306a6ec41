"""Build the model of a recipe on a graph, with initial weights or for weights that are about to be loaded."""

from __future__ import annotations

import torch

from pairre.graph import Graph
from pairre.models import LocalRows, Model, model_class
from pairre.settings import Recipe


def build_model(
    graph: Graph,
    recipe: Recipe,
    device: torch.device,
    initialise: bool = True,
    attached_with: tuple[float, int] | None = None,
    *,
    holds_entities: bool = True,
) -> Model:
    """Return the model of a recipe, with initial weights unless they are about to be loaded.

    Weights that are loaded mean what they did for the bound and the seed that they are `attached_with`. A model that
    does not hold its entities gets the source of their rows later (`Model.set_rows`).
    """
    settings = recipe.model
    with device if holds_entities else torch.device("meta"):
        model = model_class(settings.name)(
            graph.num_entities,
            graph.num_relations,
            settings.dim,
            settings.storage,
            None if settings.norm == "own" else settings.norm,
            settings.reciprocal,
            settings.dropout,
            settings.unit_norm,
        )
    if not holds_entities:
        model.hold_entities_elsewhere(device)
        model.set_rows(LocalRows(model.entity), LocalRows(model.relation))
    model.attach(graph, *(attached_with or (recipe.init_range, recipe.train.seed)))
    if initialise:
        model.initialise(recipe.init_range, recipe.train.seed)
        model.init_from_graph(graph, recipe.train.seed)
    return model
