"""Merge runs of PairRE into one whose scores are the mean of theirs: an ensemble that is itself a PairRE model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from pairre.models.pairre import PairRE
from pairre.runs.run import Run
from pairre.support.errors import RunError


def merge(runs: Sequence[Run]) -> Run:
    """Return a run with the vectors of all runs side by side; they may differ in seed, settings and size.

    Distances add up over features, so the mean of K models' distances is the distance of one model: entities
    [ê₁ … ê_K] / √K, which are on the unit sphere again, and relations [r₁ … r_K] / √K.
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
    models = [run.model.to(first.model.entity.device) for run in runs]
    dim = sum(model.dim for model in models)
    with models[0].entity.device:
        merged = PairRE(first.graph.num_entities, first.graph.num_relations, dim, reciprocal=first.model.reciprocal)
    scale = len(models) ** -0.5
    with torch.no_grad():
        entity = [model.prepare_entities(model.entity.float(), "head", None) for model in models]
        relation = [model.parts("relation", model.relation) for model in models]
        merged.entity.copy_(torch.cat(entity, -1) * scale)
        merged.relation.copy_(
            torch.cat([r.head_scale for r in relation] + [r.tail_scale for r in relation], -1) * scale
        )
    merged.requires_grad_(False)
    settings = replace(first.recipe, model=replace(first.recipe.model, dim=dim, storage="float32"))
    shared = first.rules if all(run.rules == first.rules for run in runs) else []
    return Run(first.graph, settings, merged, rules=shared)
