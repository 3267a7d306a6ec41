"""Build the model of a recipe on a graph, with initial weights or for weights that are about to be loaded."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pairre.graph import Graph
from pairre.models import LocalRows, Model, model_class
from pairre.settings import Recipe
from pairre.support.host_memory import host_zeros


class HostRows(LocalRows):
    """The rows of a table in the memory of the host; a chunk is on the device, however often kernels then read it."""

    def chunks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Yield all rows in chunks of at most `size`, each with the id of its first."""
        for start, rows in super().chunks(size):
            yield start, rows.clone()


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
    settings, on_host = recipe.model, holds_entities and recipe.tables.place == "host"
    with device:
        model = model_class(settings.name)(
            graph.num_entities,
            graph.num_relations,
            settings.dim,
            settings.storage,
            None if settings.norm == "own" else settings.norm,
            settings.reciprocal,
            settings.dropout,
            settings.unit_norm,
            holds_entities=holds_entities and not on_host,
        )
    if on_host:
        model.entity = torch.nn.Parameter(host_zeros(model.entity.shape, model.entity.dtype, device))
        model.set_rows(HostRows(model.entity))
    model.attach(graph, *(attached_with or (recipe.init_range, recipe.train.seed)))
    if initialise:
        model.initialise(recipe.init_range, recipe.train.seed)
        model.init_from_graph(graph, recipe.train.seed)
    return model
