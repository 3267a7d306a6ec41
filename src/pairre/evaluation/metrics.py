"""Declare every metric, and compute metrics and bootstrap intervals from ranks.

To add a metric, declare it here with `@metric(…)`. `evaluate`, the terminal tables, the report and the reference page
list what `METRICS` holds, in the order of declaration.

N triples, two ranks each: one among the heads and one among the tails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pairre.evaluation.ranking import SIDES, Ranks, Ties
from pairre.graph import Side

RankFunction = Callable[[Tensor, Tensor], Tensor]
METRICS: dict[str, Metric] = {}
BREAKDOWN_METRICS = ("mrr", "hits_at_10")  # the few that tables by relation or category have room for


@dataclass(frozen=True)
class Metric:
    """A number that summarises ranks, and how it is shown.

    `function` takes ranks (doubles) and numbers of candidates, two tensors of one shape. It returns either a tensor of
    that shape, whose mean is the metric, or a tensor with a single value. The bootstrap needs one value for each rank,
    so a metric that returns a single value has no interval.
    """

    key: str
    label: str
    digits: int
    higher_is_better: bool
    help: str
    function: RankFunction

    def format(self, value: float) -> str:
        """Return a value with the metric's number of digits."""
        return f"{value:.{self.digits}f}"


def metric(
    key: str, *, label: str, help: str, digits: int = 4, higher_is_better: bool = True
) -> Callable[[RankFunction], RankFunction]:
    """Return a decorator that adds a function of (ranks, num_candidates) to `METRICS`; see `Metric`."""

    def register(function: RankFunction) -> RankFunction:
        if key in METRICS:
            raise ValueError(f"a metric {key!r} is already declared")
        METRICS[key] = Metric(key, label, digits, higher_is_better, help, function)
        return function

    return register


@metric("mrr", label="MRR", help="Mean reciprocal rank: the mean of 1 / rank.")
def _mrr(ranks: Tensor, _num_candidates: Tensor) -> Tensor:
    return ranks.reciprocal()


@metric("mr", label="MR", help="Mean rank, counted from 1.", digits=1, higher_is_better=False)
def _mr(ranks: Tensor, _num_candidates: Tensor) -> Tensor:
    return ranks


def _declare_hits_at(k: int) -> None:
    @metric(f"hits_at_{k}", label=f"Hits@{k}", help=f"Fraction of ranks that are {k} or better.")
    def hits(ranks: Tensor, _num_candidates: Tensor) -> Tensor:
        return (ranks <= k).double()


for _k in (1, 3, 10):
    _declare_hits_at(_k)


@metric("amri", label="AMRI", help="Adjusted mean rank index: 1 at best, 0 for a random scorer, below 0 for worse.")
def _amri(ranks: Tensor, num_candidates: Tensor) -> Tensor:
    num_others = (num_candidates - 1).sum()
    return 1 - 2 * (ranks - 1).sum() / num_others if num_others else torch.ones(())


def summarise(ranks: Mapping[Side, Ranks], ties: Ties = "realistic") -> dict[str, dict[str, float]]:
    """Return every metric by key, for `both` sides together, `head` and `tail`."""
    groups: dict[str, tuple[Side, ...]] = {"both": SIDES, "head": ("head",), "tail": ("tail",)}
    result = {}
    for name, sides in groups.items():
        values = torch.cat([ranks[side].values(ties) for side in sides])
        num_candidates = torch.cat([ranks[side].num_candidates for side in sides])
        result[name] = {key: m.function(values, num_candidates).mean().item() for key, m in METRICS.items()}
    return result


def bootstrap(ranks: Mapping[Side, Ranks], num_resamples: int = 1000, seed: int = 0) -> dict[str, tuple[float, float]]:
    """Return the 95% interval of every metric that is a mean over ranks.

    Triples are resampled, not ranks, because the two ranks of a triple depend on each other.
    """
    values = torch.stack([ranks[side].values() for side in SIDES], 1)  # [N, 2]
    num_candidates = torch.stack([ranks[side].num_candidates for side in SIDES], 1)
    columns = {key: m.function(values, num_candidates) for key, m in METRICS.items()}
    columns = {key: column.mean(1) for key, column in columns.items() if column.ndim}
    table = torch.stack(list(columns.values()), 1).numpy()  # [N, metrics]
    random, num = np.random.default_rng(seed), len(table)
    means = np.empty((num_resamples, len(columns)))
    for i in range(num_resamples):
        # Weighting every row by how often it was drawn is faster than gathering the drawn rows.
        times_drawn = np.bincount(random.integers(num, size=num), minlength=num)
        means[i] = times_drawn.astype(np.float64) @ table / num
    low, high = np.quantile(means, (0.025, 0.975), axis=0).tolist()
    return {key: (low[i], high[i]) for i, key in enumerate(columns)}


def metric_rows() -> list[tuple[str, str, str, str]]:
    """Return a row (key, label, which direction is better, help) for each metric, for a reference page."""
    return [(m.key, m.label, "higher" if m.higher_is_better else "lower", m.help) for m in METRICS.values()]
