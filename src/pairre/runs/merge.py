"""Fold runs of PairRE into one whose scores are a weighted sum of theirs: an ensemble that is itself a PairRE model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pairre.models import Model, require_all_rows
from pairre.models.pairre import PairRE
from pairre.runs.run import Run
from pairre.support.errors import RunError

_CHUNK = 1 << 16  # rows


def merge(runs: Sequence[Run]) -> Run:
    """Return a run with the vectors of all runs side by side, whose scores are the mean of theirs.

    The runs may differ in seed, settings and size.
    """
    if len(runs) < 2:
        raise RunError("merge: give at least two runs")
    first = runs[0]
    for run in runs:
        if type(run.model) is not PairRE:
            raise RunError(f"{run}: a run of {run.model.name}; runs of pairre can be merged")
        if run.graph.fingerprint != first.graph.fingerprint:
            raise RunError(f"{run}: from another graph than {first}")
        if run.model.reciprocal != first.model.reciprocal:
            raise RunError(f"{run}: model.reciprocal is not that of {first}")
    merged = fold(runs, torch.full((first.graph.num_relations, len(runs)), 1 / len(runs), dtype=torch.float64))
    merged.origin = came_later(runs)
    return merged


def came_later(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what the origin of a run that is made of others must say of entities that came with `extend`, if any."""
    number = min(run.num_trained for run in runs)
    return {"num_entities": number} if number < runs[0].graph.num_entities else {}


def can_fold(runs: Sequence[Run]) -> bool:
    """Return whether runs are all of PairRE, so that they can be one."""
    return all(type(run.model) is PairRE and run.model.reciprocal == runs[0].model.reciprocal for run in runs)


def fold(runs: Sequence[Run], weights: Tensor) -> Run:
    """Return a run of PairRE whose scores are the weighted sum of those of K runs of PairRE on one graph.

    Weights are [R, K]. Distances add up over features, so the sum of distances is the distance of one model: entities
    [ê₁ … ê_K] / √K, which are on the unit sphere again, and relations [a₁ r₁ … a_K r_K] √K.
    """
    first = runs[0]
    models = [run.model.to(first.model.device) for run in runs]
    for run in runs:
        require_all_rows(run.model.entities, "merge")
    dim, reciprocal, device = sum(model.dim for model in models), first.model.reciprocal, first.model.device
    scales = (weights.repeat(1 + reciprocal, 1) * len(models) ** 0.5).to(device, torch.float32)  # of rows, [·, K]
    with device:
        folded = PairRE(first.graph.num_entities, first.graph.num_relations, dim, reciprocal=reciprocal)
    with torch.no_grad():
        entity = [_prepared(model) for model in models]
        relation = [model.parts("relation", model.relation) for model in models]
        folded.entity.copy_(torch.cat(entity, -1) * len(models) ** -0.5)
        scaled = [scales[:, k, None] * r.head_scale for k, r in enumerate(relation)]
        scaled += [scales[:, k, None] * r.tail_scale for k, r in enumerate(relation)]
        folded.relation.copy_(torch.cat(scaled, -1))
    folded.requires_grad_(False)
    settings = replace(first.recipe, model=replace(first.recipe.model, dim=dim, storage="float32"))
    shared = first.rules if all(run.rules == first.rules for run in runs) else []
    return Run(first.graph, settings, folded, rules=shared)


def _prepared(model: Model) -> Tensor:
    """Return all entities as the score uses them, on the device of the model."""
    chunks = (rows for _, rows in model.stored["entity"].chunks(_CHUNK))
    return torch.cat([model.prepare_entities(rows, "head", None) for rows in chunks])
