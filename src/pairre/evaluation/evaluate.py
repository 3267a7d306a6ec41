"""Evaluate a run on a split: metrics of both sides, ties, intervals, and breakdowns by relation or category."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from pairre.evaluation.metrics import bootstrap, summarise
from pairre.evaluation.ranking import SIDES, ProgressCallback, Ranks, rank_both_sides, rank_plausible
from pairre.graph import SPLITS, Graph, KnownTriples, Layout, Side, Split
from pairre.graph.lookup import Rows, find_triples
from pairre.graph.statistics import CATEGORIES, relation_categories
from pairre.runs import Run
from pairre.support.errors import GraphError, PairREError, suggest

By = Literal["side", "relation", "category"]


def evaluate(
    run: Run,
    split: Split = "test",
    by: By = "side",
    progress: ProgressCallback | None = None,
    *,
    triples: Rows | None = None,
    layout: Layout | None = None,
    skip_unknown: bool = False,
    plausible: bool = False,
) -> dict[str, Any]:
    """Return the metrics of a split as plain values, in the shape of `metrics.json`.

    Each triple is ranked among all entities, with other known triples left out, or among its fixed candidates where the
    benchmark defines them. The result has the metrics of `both` sides, `head` and `tail`, of both sides with `ties`
    counted in the true entity's favour and against it, and `interval_95`, a bootstrap over triples. With `by`, it also
    has the metrics of each relation (`by_relation`) or relation category (`by_category`). `leakage` is how many triples
    follow almost directly from train (`pairre.graph.leakage`). `progress` is called with the number of scores computed
    since its last call.

    In place of a split, `triples` may be a file or rows of names, with the `layout` and `skip_unknown` of
    `pairre.score`. With `plausible`, the result also has the metrics among the entities that `predict` considers.
    """
    graph = run.graph
    for option, value, known_values in (("split", split, SPLITS), ("by", by, get_args(By))):
        if value not in known_values:
            raise PairREError(
                f"{option} {value!r}: unknown{suggest(str(value), known_values)}; one of {', '.join(known_values)}"
            )
    if triples is not None:
        name, chosen = _own_triples(graph, triples, layout, skip_unknown)
        every = torch.cat([*(graph.split(s) for s in SPLITS), chosen])
        known, fixed_candidates = KnownTriples(every, graph.num_entities, graph.num_relations), {}
    elif len(graph.split(split)) == 0:
        raise GraphError(f"{graph.name}: the {split} split is empty, so there is nothing to evaluate")
    else:
        name, chosen, known, fixed_candidates = split, graph.split(split), graph.known, graph.fixed_candidates(split)
    ranks = rank_both_sides(run.model, chosen, known, progress, fixed_candidates)
    result: dict[str, Any] = {
        "split": name,
        "graph": graph.name,
        "num_triples": len(chosen),
        "protocol": f"{fixed_candidates['tail'].shape[1]:,} fixed candidates" if fixed_candidates else "filtered",
        **summarise(ranks),
        "ties": {ties: summarise(ranks, ties)["both"] for ties in ("optimistic", "pessimistic")},
        "interval_95": bootstrap(ranks),
    }
    if plausible:
        result["plausible"] = _among_plausible(run, chosen, known, progress)
    if by == "category":
        result["by_category"] = summarise_groups(ranks, triples_by_category(graph, chosen))
    elif by == "relation":  # the keys are names; `shown` is how people read them
        result["by_relation"] = summarise_groups(ranks, triples_by_relation(graph, chosen))
        for id, group in zip(torch.unique(chosen[:, 1]).tolist(), result["by_relation"].values(), strict=True):
            group["shown"] = graph.show_relation(id)
    if triples is None and split != "train":
        result["leakage"] = graph.leakage[split]
    return result


def _own_triples(graph: Graph, source: Rows, layout: Layout | None, skip_unknown: bool) -> tuple[str, Tensor]:
    """Return the name of a file or of rows of names, and their triples by id, int32 [N, 3]."""
    found = find_triples(graph, source, layout, skip_unknown=skip_unknown)
    if len(found.triples) == 0:
        raise GraphError(f"{found.source}: no triple has only known names, so there is nothing to evaluate")
    return found.source, found.triples.int()


def _among_plausible(
    run: Run, triples: Tensor, known: KnownTriples, progress: ProgressCallback | None
) -> dict[str, Any]:
    """Return the metrics of triples ranked among the entities that `predict` considers, and how many it loses."""
    found = {side: rank_plausible(run.model, run.graph, triples, known, side, progress) for side in SIDES}
    num_lost = {side: int(lost.sum()) for side, (_, lost) in found.items()}
    return {**summarise({side: ranks for side, (ranks, _) in found.items()}), "num_lost": num_lost}


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
