"""Choose the weights of an ensemble on validation: one for each member, and where it pays for each relation.

Weights maximise the likelihood of the true entities in a softmax of Σ_m a_m score_m over all entities, which is concave
in a. The weights of a relation are held to those of all relations as if so many more of its queries had the average
curvature: with few queries they stay there, with many they go where these say. How strongly they are held, and whether
relations have weights of their own at all, is what gives the highest MRR on folds of the validation triples that were
left out of a fit.

Q queries, C candidates of each, M members, R relations, G groups of queries with weights of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pairre.evaluation.candidates import CandidateScores
from pairre.support.randomness import generator

_FOLDS = 5
_STEPS = 30
_HALVINGS = 8
_NOISE = 1e-6  # of a sum of likelihoods in float32, relative to it
_TOLERANCE = 1e-6  # of the log likelihood of a query
_LEAST = 1e-9  # weight of a member without the others, so that its temperature is finite


@dataclass(frozen=True)
class Plan:
    """Whether relations have weights of their own, and how strongly these are held to those of all."""

    hold: float | None = None  # None: relations share weights
    equal: bool = False  # weights of 1 / temperature: nothing is fitted but temperatures

    def __str__(self) -> str:
        if self.hold is not None:
            return f"by relation (held by {self.hold:g})"
        return "equal" if self.equal else "one for all"


PLANS = (Plan(equal=True), Plan(), *(Plan(hold) for hold in (300.0, 100.0, 30.0, 10.0)))  # the simplest first


@dataclass(frozen=True)
class Fit:
    """Weights, and the MRR of every plan on folds that were left out."""

    weights: Tensor  # [R, M] float64
    temperatures: Tensor  # [M] float64: of each member alone
    overall: Tensor  # [M] float64: weights of all relations together
    plan: Plan
    left_out_mrr: dict[str, float]  # by plan


def fit(found: CandidateScores, num_relations: int, plans: Sequence[Plan] = PLANS) -> Fit:
    """Return the weights of the plan that is best on triples left out of the fit; of equal plans, of the first."""
    mrr = dict.fromkeys(plans, 0.0)
    for inside, outside in _folds(found) if len(plans) > 1 else ():
        fitter, rest = _Fitter(found.select(inside), num_relations), found.select(outside)
        for plan in plans:
            ranks = rest.reciprocal_ranks(fitter.weights_of(plan)[rest.relation])
            mrr[plan] += float(ranks.sum()) / len(found.triple)
    best = max(plans, key=lambda plan: mrr[plan])
    fitter = _Fitter(found, num_relations)
    left_out = {str(plan): value for plan, value in mrr.items()}
    return Fit(fitter.weights_of(best), 1 / fitter.alone, fitter.overall, best, left_out)


def temperatures(found: CandidateScores) -> Tensor:
    """Return the temperature [M] at which each model alone makes the true entities most likely."""
    return 1 / _alone(_above_true(found), found.size.log())


def _above_true(found: CandidateScores) -> Tensor:
    """Return scores [M, Q, C] above that of the true entity."""
    return (found.scores - found.scores[:, :1]).permute(2, 0, 1).contiguous()


def _alone(scores: Tensor, log_size: Tensor) -> Tensor:
    """Return the weight [M] of each member without the others."""
    everything = torch.zeros(len(log_size), dtype=torch.int64)
    parts = [
        _Likelihood(scores[m : m + 1], log_size, everything, 1).maximise(torch.zeros(1, 1)).weights[0]
        for m in range(len(scores))
    ]
    return torch.cat(parts).clamp(min=_LEAST)


def _folds(found: CandidateScores) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the queries inside and outside of each fit; the two queries of a triple are on the same side of it."""
    num_triples = int(found.triple.max()) + 1
    fold = torch.randperm(num_triples, generator=generator(0, "folds"))[found.triple] % _FOLDS
    for number in range(_FOLDS):
        if bool((fold == number).any()) and bool((fold != number).any()):
            yield (fold != number).nonzero()[:, 0], (fold == number).nonzero()[:, 0]


class _Fitter:
    """The weights of plans on some queries; what plans have in common is fitted once."""

    def __init__(self, found: CandidateScores, num_relations: int) -> None:
        self.relation, self.num_relations = found.relation, num_relations
        self.scores, self.log_size = _above_true(found), found.size.log()
        everything = torch.zeros_like(found.relation)
        self.alone = _alone(self.scores, self.log_size)  # [M]
        best = _Likelihood(self.scores, self.log_size, everything, 1).maximise(self.alone[None] / len(self.alone))
        self.overall = best.weights[0]  # [M]
        self.curvature = best.curvature[0] / max(1, len(everything))  # [M, M] of a query

    def weights_of(self, plan: Plan) -> Tensor:
        """Return the weights [R, M] of a plan."""
        if plan.equal:
            return (self.alone / len(self.alone)).expand(self.num_relations, -1)
        weights = self.overall.expand(self.num_relations, -1)
        if plan.hold is None:
            return weights
        hold = plan.hold * self.curvature
        held = _Likelihood(self.scores, self.log_size, self.relation, self.num_relations, weights, hold)
        return held.maximise(weights).weights


class _Point(NamedTuple):
    """A function of weights [G, M] at some of them: with each group's value, gradient and curvature."""

    weights: Tensor  # [G, M] float64
    value: Tensor  # [G]
    gradient: Tensor  # [G, M]
    curvature: Tensor  # [G, M, M], minus the second derivatives


class _Likelihood:
    """The log likelihood of the true entities as a function of weights, and a quadratic that holds these."""

    def __init__(
        self,
        scores: Tensor,
        size: Tensor,
        group: Tensor,
        num_groups: int,
        centre: Tensor | None = None,
        hold: Tensor | None = None,
    ) -> None:
        """Take scores [M, Q, C] above that of the true entity, and the logarithms [Q, C] of candidates' sizes."""
        self.scores, self.size, self.group, self.num_groups = scores, size, group, num_groups
        num = len(scores)
        self.centre = torch.zeros(num_groups, num, dtype=torch.float64) if centre is None else centre
        self.hold = torch.zeros(num, num, dtype=torch.float64) if hold is None else hold

    def at(self, weights: Tensor) -> _Point:
        """Return the function at weights [G, M]."""
        num, of_query = len(self.scores), weights[self.group].float()  # [Q, M]
        logits = self.size.clone()
        for m in range(num):
            logits.addcmul_(self.scores[m], of_query[:, m, None])
        total = logits.logsumexp(1)
        p = logits.sub_(total[:, None]).exp_()
        weighted = [p * self.scores[m] for m in range(num)]
        mean = torch.stack([part.sum(1) for part in weighted], 1)
        spread = torch.empty(len(p), num, num)
        for m in range(num):
            for n in range(m + 1):
                spread[:, m, n] = spread[:, n, m] = (weighted[m] * self.scores[n]).sum(1) - mean[:, m] * mean[:, n]
        gap = weights - self.centre
        held = torch.einsum("gm,mn,gn->g", gap, self.hold, gap) / 2
        return _Point(
            weights, self._sum(-total) - held, self._sum(-mean) - gap @ self.hold, self._sum(spread) + self.hold
        )

    def _sum(self, values: Tensor) -> Tensor:
        """Return the sums of values [Q, ·] over the queries of each group."""
        total = torch.zeros(self.num_groups, *values.shape[1:], dtype=torch.float64)
        return total.index_add_(0, self.group, values.double())

    def maximise(self, start: Tensor) -> _Point:
        """Return where the value is largest among weights [G, M] of at least 0, by Newton's steps within that bound."""
        best = self.at(start.double())
        for _ in range(_STEPS):
            step, size = _newton_step(best), torch.ones(self.num_groups, 1, dtype=torch.float64)
            for _ in range(_HALVINGS):
                tried = self.at((best.weights + size * step).clamp(min=0))
                worse = ~(tried.value >= best.value - _NOISE * (1 + best.value.abs()))
                if not bool(worse.any()):
                    break
                size[worse] /= 2
            better = tried.value > best.value
            gain = torch.where(better, tried.value - best.value, 0.0)
            best = _Point(*(_where(better, new, old) for new, old in zip(tried, best, strict=True)))
            if float(gain.sum()) <= _TOLERANCE * len(self.group):
                break
        return best


def _where(chosen: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Return the rows of `new` where they are chosen [G], else those of `old`."""
    return torch.where(chosen.view(-1, *[1] * (new.dim() - 1)), new, old)


def _newton_step(point: _Point) -> Tensor:
    """Return Newton's step [G, M]; weights of 0 that would fall stay."""
    free = ~((point.weights <= 0) & (point.gradient <= 0))
    kept = free[:, :, None] & free[:, None]
    ridge = 1e-9 + 1e-6 * point.curvature.diagonal(dim1=1, dim2=2).amax(1)
    eye = torch.eye(free.shape[1], dtype=torch.float64)
    matrix = torch.where(kept, point.curvature, 0.0) + eye * (ridge[:, None, None] + (~free)[:, :, None])
    step: Tensor = torch.linalg.solve(matrix, (point.gradient * free)[..., None])[..., 0]
    return step * free
