"""Filtered ranks → metrics: how a test triple fares among all heads and among all tails, or among those it is given.

N triples, B queries at a time, E entities, K given candidates.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from pairre import kernels
from pairre.graph import KnownTriples, Side, Split
from pairre.graph.index import COLUMN
from pairre.graph.statistics import CATEGORIES, relation_categories
from pairre.models import Model
from pairre.runs.folder import Run
from pairre.support.errors import GraphError

log = logging.getLogger("pairre")
Metrics = dict[str, float]
By = Literal["side", "relation", "category"]
HITS = (1, 3, 10)
_SIDES: tuple[Side, Side] = ("head", "tail")
_QUERIES = {"cpu": 1 << 18, "cuda": 1 << 26}  # features of the queries held at a time
_GIVEN = {"cpu": 1 << 22, "cuda": 1 << 28}  # features of the given candidates held at a time


@dataclass(frozen=True)
class Ranks:
    """How one side of N triples fared: candidates that score higher, that tie, and all there were, itself included."""

    higher: Tensor  # [N] int64
    equal: Tensor  # [N] int64
    num_candidates: Tensor  # [N] int64

    @property
    def optimistic(self) -> Tensor:
        """Ties lose to the true entity."""
        return (self.higher + 1).double()

    @property
    def pessimistic(self) -> Tensor:
        """Ties win over the true entity."""
        return (self.higher + self.equal + 1).double()

    @property
    def realistic(self) -> Tensor:
        """The mean of the two: a constant scorer lands in the middle."""
        return (self.optimistic + self.pessimistic) / 2


def rank(
    model: Model, triples: Tensor, known: KnownTriples, side: Side, progress: Callable[[int], None] = lambda _: None
) -> Ranks:
    """Rank the true entity on `side` of [N, 3] triples among all entities, other known ones left out.

    Scores are counted where they arise: nothing of size queries × entities is stored.
    """
    device = model.entity.device
    triples = triples.to(device, torch.int64)
    known = known.to(device)
    own = triples[:, COLUMN[side]]
    begin, end, members = known.ranges(triples, side)
    higher, equal = (torch.zeros(len(triples), dtype=torch.int64, device=device) for _ in range(2))
    true = torch.empty(len(triples), device=device)
    size = max(1, _QUERIES[device.type] // model.dim)
    with torch.no_grad():
        for part, chunks in model.rankings(triples, side, size):
            relation, query = model.asked(triples[part], side)
            rows = model.prepared(model.entity_rows(own[part]), model.candidate_side(side), relation)
            true[part] = model.true_scores(*query, rows)
            left_out = (begin[part], end[part], members, own[part])
            for first, rows in chunks():
                above, ties = model.count_above(*query, rows, true[part], *left_out, first)
                higher[part] += above
                equal[part] += ties
                progress(len(above) * len(rows))
    itself = kernels.backend(device.type).known_mask(known.side(side), *known.pair(triples, side), own[:, None], 1)[
        :, 0
    ]
    num_candidates = model.num_entities - (end - begin) + itself.long()
    return _ranks(higher, equal, num_candidates, true.isnan())


def rank_given(
    model: Model, triples: Tensor, given: Tensor, side: Side, progress: Callable[[int], None] = lambda _: None
) -> Ranks:
    """Rank the true entity on `side` of [N, 3] triples among itself and its given candidates [N, K]."""
    device = model.entity.device
    counts, own = [], triples[:, COLUMN[side], None].long()
    size = max(1, _GIVEN[device.type] // (model.dim * (given.shape[1] + 1)))
    with torch.no_grad():
        for start in range(0, len(triples), size):
            part = slice(start, start + size)
            candidates = torch.cat([own[part], given[part].long()], 1).to(device)
            scores = model.score_candidates(triples[part].to(device, torch.int64), side, candidates)
            true, others = scores[:, :1], scores[:, 1:]
            counts.append(torch.stack([(others > true).sum(1), (others == true).sum(1), true[:, 0].isnan()]))
            progress(len(scores) * model.num_entities)
    higher, equal, lost = torch.cat(counts, 1)
    return _ranks(higher, equal, torch.full_like(higher, given.shape[1] + 1), lost.bool())


def _ranks(higher: Tensor, equal: Tensor, num_candidates: Tensor, lost: Tensor) -> Ranks:
    """Ranks from what was counted; the lost ones, whose true score is NaN, come last."""
    if num_lost := int(lost.sum()):
        log.warning("%s of %s true triples score NaN and are ranked last", f"{num_lost:,}", f"{len(lost):,}")
        higher = torch.where(lost, num_candidates - 1, higher)
        equal = torch.where(lost, 0, equal)
    return Ranks(higher.cpu(), equal.cpu(), num_candidates.cpu())


def metrics(ranks: Tensor, num_candidates: Tensor) -> Metrics:
    """Mean rank, mean reciprocal rank, hits, and the adjusted mean rank index (0 for a random scorer, 1 at best)."""
    above = (num_candidates - 1).sum().item()
    return {
        "mrr": ranks.reciprocal().mean().item(),
        "mr": ranks.mean().item(),
        **{f"hits_at_{k}": (ranks <= k).double().mean().item() for k in HITS},
        "amri": 1 - 2 * (ranks - 1).sum().item() / above if above else 1.0,
    }


def evaluate_triples(
    model: Model,
    triples: Tensor,
    known: KnownTriples,
    progress: Callable[[int], None] = lambda _: None,
    given: Mapping[Side, Tensor] | None = None,
) -> dict[Side, Ranks]:
    """Ranks of both sides: among the candidates that are given, as `Graph.given` has them, else among all entities."""
    if given:
        return {side: rank_given(model, triples, given[side], side, progress) for side in _SIDES}
    return {side: rank(model, triples, known, side, progress) for side in _SIDES}


def summarise(ranks: dict[Side, Ranks], chosen: Tensor | None = None) -> dict[str, Metrics]:
    """Metrics of both sides together and of each, over all triples or the chosen ones."""

    def of(sides: tuple[Side, ...]) -> Metrics:
        rank_parts = [ranks[s].realistic if chosen is None else ranks[s].realistic[chosen] for s in sides]
        size_parts = [ranks[s].num_candidates if chosen is None else ranks[s].num_candidates[chosen] for s in sides]
        return metrics(torch.cat(rank_parts), torch.cat(size_parts))

    return {"both": of(_SIDES), "head": of(("head",)), "tail": of(("tail",))}


def evaluate(
    run: Run, split: Split = "test", by: By = "side", progress: Callable[[int], None] = lambda _: None
) -> dict[str, Any]:
    """Filtered metrics of a split: both sides and each, ties three ways, a bootstrap interval; optionally by group.

    Where the graph is a benchmark that gives each triple its candidates, these are ranked and nothing is left out.
    The result is plain values, the shape of `metrics.json`.
    """
    graph = run.graph
    triples = graph.split(split)
    if len(triples) == 0:
        raise GraphError(f"{graph.name}: the {split} split is empty, so there is nothing to evaluate")
    given = graph.fixed_candidates(split)
    ranks = evaluate_triples(run.model, triples, graph.known, progress, given)
    sizes = torch.cat([ranks[s].num_candidates for s in _SIDES])
    result: dict[str, Any] = {
        "split": split,
        "graph": graph.name,
        "num_triples": len(triples),
        "protocol": f"{given['tail'].shape[1]:,} given candidates" if given else "filtered",
        **summarise(ranks),
        "ties": {
            kind: metrics(torch.cat([getattr(ranks[s], kind) for s in _SIDES]), sizes)
            for kind in ("optimistic", "pessimistic")
        },
        "interval_95": bootstrap(torch.stack([ranks[s].realistic for s in _SIDES], 1)),
    }
    if by == "relation":
        groups = {graph.relations[i]: triples[:, 1] == i for i in torch.unique(triples[:, 1]).tolist()}
    elif by == "category":
        category = np.array(relation_categories(graph))[triples[:, 1].numpy()]
        groups = {c: torch.from_numpy(category == c) for c in CATEGORIES if (category == c).any()}
    else:
        return result
    result[f"by_{by}"] = {
        name: {"num_triples": int(chosen.sum()), **summarise(ranks, chosen)} for name, chosen in groups.items()
    }
    return result


def bootstrap(ranks: Tensor, resamples: int = 1000, seed: int = 0) -> dict[str, tuple[float, float]]:
    """95% intervals from resampled triples; ranks [N, 2] keep the two sides of a triple together."""
    values = {"mrr": ranks.reciprocal(), "mr": ranks, **{f"hits_at_{k}": (ranks <= k).double() for k in HITS}}
    table = torch.stack([v.mean(1) for v in values.values()], 1).numpy()  # [N, metrics]
    random, num = np.random.default_rng(seed), len(table)
    means = np.stack([_times_drawn(random, num) @ table / num for _ in range(resamples)])
    low, high = np.quantile(means, (0.025, 0.975), axis=0).tolist()
    return {name: (low[i], high[i]) for i, name in enumerate(values)}


def _times_drawn(random: np.random.Generator, num: int) -> np.ndarray:
    """How often each of so many is among as many draws; a sum with these weights is quicker than gathering rows."""
    return np.bincount(random.integers(num, size=num), minlength=num).astype(np.float64)
