"""A run in memory: a trained model with its graph and its recipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pairre.graph import Graph
from pairre.models import Model, model_class
from pairre.rules import Rule
from pairre.runs.folder import RunFolder
from pairre.settings import Recipe
from pairre.support.device import pick_device


@dataclass
class Run:
    """A trained model with the graph and the recipe it came from: what `evaluate` and `predict` take."""

    graph: Graph
    recipe: Recipe
    model: Model
    history: list[dict[str, Any]] = field(default_factory=list)
    path: Path | None = None
    rules: list[Rule] = field(default_factory=list)

    def __repr__(self) -> str:
        where = self.path or "in memory"
        return f"Run({self.model.name}, {self.recipe.model.dim} features, {self.graph.name}, {where})"

    def save(self, path: str | Path) -> Path:
        """Write a run that was trained in memory as a run folder."""
        folder = RunFolder.create(Path(path), self.graph, self.recipe, self.rules)
        folder.save_model(self.model)
        for entry in self.history:
            folder.append_log(entry)
        self.path = folder.path
        return folder.path


def load_run(path: str | Path, device: str = "auto") -> Run:
    """Return the run of a folder, with its best weights."""
    folder = RunFolder.open(Path(path))
    recipe, graph = folder.recipe(), folder.graph()
    model = build_model(graph, recipe, pick_device(device), initialise=False)
    folder.load_model(model)
    model.requires_grad_(False)
    return Run(graph, recipe, model, folder.read_log(), folder.path, folder.rules())


def build_model(graph: Graph, recipe: Recipe, device: torch.device, initialise: bool = True) -> Model:
    """Return the model of a recipe, with initial weights unless they are about to be loaded."""
    settings = recipe.model
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
        )
    model.attach(graph, recipe.init_range, recipe.train.seed)
    if initialise:
        model.initialise(recipe.init_range, recipe.train.seed)
        model.init_from_graph(graph, recipe.train.seed)
    return model
