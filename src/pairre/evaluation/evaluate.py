"""Evaluate a run on a split: metrics of both sides, ties, intervals, and breakdowns by relation or category."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from pairre.evaluation.metrics import bootstrap, summarise
from pairre.evaluation.ranking import SIDES, ProgressCallback, Ranks, rank, rank_among, rank_both_sides  # noqa: F401
from pairre.graph import Graph, Side, Split
from pairre.graph.statistics import CATEGORIES, relation_categories
from pairre.runs import Run
from pairre.support.errors import GraphError

By = Literal["side", "relation", "category"]


def evaluate(
    run: Run, split: Split = "test", by: By = "side", progress: ProgressCallback | None = None
) -> dict[str, Any]:
    """Return the metrics of a split as plain values, in the shape of `metrics.json`.

    Each triple is ranked among all entities, with other known triples left out, or among its fixed candidates where the
    benchmark defines them. The result has the metrics of `both` sides, `head` and `tail`, of both sides with `ties`
    counted in the true entity's favour and against it, and `interval_95`, a bootstrap over triples. With `by`, it also
    has the metrics of each relation (`by_relation`) or relation category (`by_category`). `progress` is called with the
    number of scores computed since its last call.
    """
    graph = run.graph
    triples = graph.split(split)
    if len(triples) == 0:
        raise GraphError(f"{graph.name}: the {split} split is empty, so there is nothing to evaluate")
    fixed_candidates = graph.fixed_candidates(split)
    ranks = rank_both_sides(run.model, triples, graph.known, progress, fixed_candidates)
    result: dict[str, Any] = {
        "split": split,
        "graph": graph.name,
        "num_triples": len(triples),
        "protocol": f"{fixed_candidates['tail'].shape[1]:,} fixed candidates" if fixed_candidates else "filtered",
        **summarise(ranks),
        "ties": {ties: summarise(ranks, ties)["both"] for ties in ("optimistic", "pessimistic")},
        "interval_95": bootstrap(ranks),
    }
    if by != "side":
        groups = triples_by_relation(graph, triples) if by == "relation" else triples_by_category(graph, triples)
        result[f"by_{by}"] = summarise_groups(ranks, groups)
    return result


def summarise_groups(ranks: Mapping[Side, Ranks], groups: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    """Return, for each named group of triples, its `num_triples` and the metrics of `both` sides, `head` and `tail`.

    A group is the positions [M] of its triples among those that were ranked.
    """
    return {
        name: {"num_triples": len(group), **summarise({side: ranks[side].select(group) for side in SIDES})}
        for name, group in groups.items()
    }


def triples_by_relation(graph: Graph, triples: Tensor) -> dict[str, Tensor]:
    """Return, by relation name, the positions of its triples; relations without triples are left out."""
    relation = triples[:, 1].long()
    positions = relation.argsort(stable=True)
    ids, counts = torch.unique(relation, return_counts=True)
    groups = torch.split(positions, counts.tolist())
    return dict(zip(graph.relations.name_list(ids.tolist()), groups, strict=True))


def triples_by_category(graph: Graph, triples: Tensor) -> dict[str, Tensor]:
    """Return, by relation category (1-1, 1-N, N-1, N-N), the positions of its triples; empty ones are left out."""
    category = np.array(relation_categories(graph))[triples[:, 1].numpy()]
    groups = {name: torch.from_numpy(np.flatnonzero(category == name)) for name in CATEGORIES}
    return {name: group for name, group in groups.items() if len(group)}
