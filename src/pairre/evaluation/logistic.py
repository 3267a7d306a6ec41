"""Fit a curve from numbers to probabilities: logistic with offsets of groups, bent to the data where these are many.

N observations, G groups, P points. z = slope · x + intercept + offset of the group, with offsets ~ Normal(0, τ²), where
τ² is estimated from the data (empirical Bayes). z is the logit of the probability, or, with enough observations, what a
line through P points makes of it, which isotonic regression finds. The curve ascends strictly in either case.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_MAX_STEPS = 100  # of Newton's method
_MAX_ROUNDS = 100  # of estimating τ²
_MIN_SLOPE = 1e-4  # in standard deviations of x, so that the curve always ascends
_MIN_VARIANCE = 1e-8  # of the offsets
_OBSERVATIONS_PER_POINT = 50  # true ones, and as many false ones
_POINTS = (4, 20)  # with fewer, the logistic curve stays as it is


@dataclass(frozen=True)
class Curve:
    """A curve: slope above 0, intercept, offsets [G] (0 for a group without observations), points [P, 2], base rate.

    A point is a value of z and the logit there; between points the logit is linear in z, and beyond them it ascends as
    z does. Without points the logit is z.
    """

    slope: float
    intercept: float
    offsets: Floats
    points: Floats
    base_rate: float


def fit_curve(
    x: Floats, true: NDArray[np.bool_], groups: NDArray[np.int64], num_groups: int, base_rate: float | None = None
) -> Curve:
    """Return the curve of N observations, N ≥ 1, whose shares of true and false ones are weighted to a base rate.

    The targets are Platt's, (n₊ + 1) / (n₊ + 2) and 1 / (n₋ + 2), so that the curve exists even where one number of x
    separates true from false. Everything is computed in float64 and in a fixed order.
    """
    num, num_true = len(x), int(true.sum())
    natural = (num_true + 1) / (num + 2)  # strictly between 0 and 1
    rate = natural if base_rate is None else base_rate
    weight = np.where(true, rate / natural, (1 - rate) / (1 - natural))
    target = np.where(true, (num_true + 1) / (num_true + 2), 1 / (num - num_true + 2))
    mean, spread = float(x.mean()), float(x.std()) or 1.0
    present, position = np.unique(groups, return_inverse=True)
    problem = _Problem((x - mean) / spread, target, weight, position, len(present))
    common, offsets = problem.solve()
    table = np.zeros(num_groups)
    table[present] = offsets
    points = _isotonic(problem.logit(common, offsets), true, target, weight)
    return Curve(float(common[0]) / spread, float(common[1] - common[0] * mean / spread), table, points, rate)


def _isotonic(z: Floats, true: NDArray[np.bool_], target: Floats, weight: Floats) -> Floats:
    """Return points [P, 2] of (z, logit), both strictly ascending; none where observations are few.

    Observations are grouped by z so that each group has as many true ones. Neighbours that do not ascend are pooled.
    """
    least, most = _POINTS
    num_groups = min(most, min(int(true.sum()), int((~true).sum())) // _OBSERVATIONS_PER_POINT)
    if num_groups < least:
        return np.empty((0, 2))
    order = np.argsort(z, kind="stable")
    counts = np.cumsum(true[order])
    edges = np.searchsorted(counts, np.linspace(0, counts[-1], num_groups + 1)[1:-1])
    p = _sigmoid(z)
    pooled: list[Floats] = []  # sums of weight, of weighted targets, and of weighted p
    for part in np.split(order, edges):
        pooled.append(np.array([weight[part].sum(), (weight * target)[part].sum(), (weight * p)[part].sum()]))
        while len(pooled) > 1 and not (pooled[-2][1:] / pooled[-2][0] < pooled[-1][1:] / pooled[-1][0]).all():
            last = pooled.pop()
            pooled[-1] = pooled[-1] + last
    total, trues, expected = np.array(pooled).T
    return np.stack([np.log(sums / (total - sums)) for sums in (expected, trues)], 1)


def _sigmoid(z: Floats) -> Floats:
    """Return 1 / (1 + exp(-z)) without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * z))


class _Problem:
    """The penalised likelihood of a curve and its maximum; the first two parameters are slope and intercept."""

    def __init__(self, x: Floats, target: Floats, weight: Floats, groups: NDArray[np.int64], num_groups: int) -> None:
        self.x, self.target, self.weight, self.groups, self.num_groups = x, target, weight, groups, num_groups

    def solve(self) -> tuple[Floats, Floats]:
        """Return slope and intercept, and the offsets; the variance τ² of these by expectation maximisation."""
        common, offsets, variance = np.array([1.0, 0.0]), np.zeros(self.num_groups), 1.0
        for _ in range(_MAX_ROUNDS):
            common, offsets, uncertainty = self._maximise(common, offsets, variance)
            before, variance = variance, max(_MIN_VARIANCE, float((offsets**2 + uncertainty).mean()))
            if abs(variance - before) <= 1e-4 * before:
                break
        return common, offsets

    def logit(self, common: Floats, offsets: Floats) -> Floats:
        """Return z of every observation."""
        z: Floats = common[0] * self.x + common[1] + offsets[self.groups]
        return z

    def _maximise(self, common: Floats, offsets: Floats, variance: float) -> tuple[Floats, Floats, Floats]:
        """Return the parameters of the maximum for a τ², by Newton's method, and the variance of each offset."""
        best = self._objective(common, offsets, variance)
        for _ in range(_MAX_STEPS):
            step, offset_step, curvature = self._newton_step(common, offsets, variance)
            size = 1.0
            while size > 1e-10:
                moved = common + size * step
                moved[0] = max(moved[0], _MIN_SLOPE)
                value = self._objective(moved, offsets + size * offset_step, variance)
                if value >= best:
                    break
                size /= 2
            else:
                break
            gain, best = value - best, value
            common, offsets = moved, offsets + size * offset_step
            if gain <= 1e-12 * (1 + abs(best)):
                break
        return common, offsets, 1 / curvature

    def _objective(self, common: Floats, offsets: Floats, variance: float) -> float:
        logit = self.logit(common, offsets)
        likelihood = self.target * logit - np.logaddexp(0, logit)
        return float((self.weight * likelihood).sum() - (offsets**2).sum() / (2 * variance))

    def _newton_step(self, common: Floats, offsets: Floats, variance: float) -> tuple[Floats, Floats, Floats]:
        """Return the step of slope and intercept, of the offsets, and the curvature of each offset.

        The offsets do not touch each other, so they are eliminated and a system of two equations is left.
        """
        logit = self.logit(common, offsets)
        p = _sigmoid(logit)
        residual, v = self.weight * (self.target - p), self.weight * p * (1 - p)
        sums = [self._by_group(values) for values in (residual, v, v * self.x)]
        gradient, curvature = sums[0] - offsets / variance, sums[1] + 1 / variance
        cross = np.stack([sums[2], sums[1]])  # [2, G]
        matrix = np.array([[(v * self.x**2).sum(), (v * self.x).sum()], [(v * self.x).sum(), v.sum()]])
        matrix -= (cross / curvature) @ cross.T
        right = np.array([(residual * self.x).sum(), residual.sum()]) - cross @ (gradient / curvature)
        if common[0] <= _MIN_SLOPE and right[0] <= 0:  # the slope stays at its bound
            matrix[0], matrix[1, 0], right[0] = (1.0, 0.0), 0.0, 0.0
        step: Floats = np.linalg.solve(matrix + 1e-9 * np.eye(2), right).astype(np.float64)
        return step, (gradient - cross.T @ step) / curvature, curvature

    def _by_group(self, values: Floats) -> Floats:
        """Return the sum of some values [N] for each group."""
        return np.bincount(self.groups, values, self.num_groups).astype(np.float64)
