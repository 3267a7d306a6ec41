"""Start training from the vectors of another run: rows of the same names are copied, the others are drawn as ever."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch

from pairre.graph import Graph, Vocabulary
from pairre.models import Model
from pairre.runs import Run, whole_weights
from pairre.settings import Recipe
from pairre.support.errors import RecipeError, RunError

log = logging.getLogger("pairre")
_MUST_FIT = ("name", "dim", "reciprocal")  # keys of the section `model`


def start_of(source: Run) -> dict[str, Any]:
    """Return what run.json says about the run that another one starts from."""
    return {
        "command": "train --init-from",
        "run": source.path.name if source.path else "a run in memory",
        "fingerprint": source.graph.fingerprint,
    }


def fit_to_start(recipe: Recipe, source: Run) -> Recipe:
    """Return a recipe whose new rows are drawn as those of the source were; RecipeError if its model is another."""
    for key in _MUST_FIT:
        mine, theirs = getattr(recipe.model, key), getattr(source.recipe.model, key)
        if mine != theirs:
            raise RecipeError(
                f"model.{key}: {mine}, but the run to start from has {theirs}, and only rows of the same shape can be "
                f"copied: set model.{key}={str(theirs).lower()}"
            )
    bound, _ = source.model.attached_with or (source.recipe.init_range, 0)
    if not recipe.model.init_range:
        return replace(recipe, model=replace(recipe.model, init_range=bound))
    if source.model.bound_is_unit and recipe.model.init_range != bound:
        raise RecipeError(
            f"model.init_range: {recipe.model.init_range:g}, but it is the unit of the phases of {source.model.name}, "
            f"and the run to start from has {bound:g}: leave it out"
        )
    return recipe


@torch.no_grad()
def copy_known_rows(model: Model, graph: Graph, source: Run) -> None:
    """Copy the rows of entities and relations that the source has by name, and weights that belong to no row.

    A RunError says that there is nothing to copy.
    """
    stored, found = model.state_dict(), whole_weights(source.model)
    pairs = {
        "entity": _same_names(graph.entities, source.graph.entities),
        "relation": _same_names(graph.relations, source.graph.relations),
    }
    if not len(pairs["entity"][0]):
        raise RunError(f"{source}: no entity of {graph.name} has a name of this run, so that nothing starts from it")
    for name, value in found.items():
        rows = stored[name]
        if name not in pairs:
            rows.copy_(value)
            continue
        mine, theirs = pairs[name]
        copies = 1 + model.reciprocal if name == "relation" else 1
        for own, other in zip(rows.chunk(copies), value.chunk(copies), strict=True):
            own[mine.to(rows.device)] = other[theirs.to(value.device)].to(rows.device, rows.dtype)
        model.constrain(name, rows)
    sizes = {"entity": graph.num_entities, "relation": graph.num_relations}
    if any(len(pairs[name][0]) < size for name, size in sizes.items()):
        counts = [f"{len(pairs[name][0]):,} of {size:,}" for name, size in sizes.items()]
        log.warning(
            "%s entities and %s relations start from %s, the others are drawn", *counts, start_of(source)["run"]
        )


def _same_names(mine: Vocabulary, theirs: Vocabulary) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids of the names that both vocabularies have, in each of them."""
    place = pc.fill_null(pc.index_in(mine.names.cast(theirs.names.type), value_set=theirs.names), -1).to_numpy()
    shared = np.flatnonzero(place >= 0)
    return torch.from_numpy(shared), torch.from_numpy(place[shared].astype(np.int64))
