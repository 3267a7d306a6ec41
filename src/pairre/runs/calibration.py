"""The calibration of a run: the map from scores to probabilities that is stored with it; `evaluation/` fits it.

R relations, P points of a curve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

VECTOR = 64  # a multiple of how many numbers torch computes at once
_NUMBERS = ("slope", "intercept", "base_rate", "num_true", "num_false")


@dataclass(frozen=True, eq=False)
class Calibration:
    """A map from scores to probabilities, and the base rate that they refer to."""

    slope: float
    intercept: float
    offsets: Tensor  # [R] float64; a relation without answers in the validation split has 0
    points: Tensor  # [P, 2] float64, see `evaluation.logistic.Curve`
    base_rate: float
    num_true: int
    num_false: int
    negatives: str  # "answers", or "given" where false triples were given
    num_entities: int  # the entities that it was fitted on; `extend` adds others, whose scores say something else

    def probability(self, scores: Tensor, relations: Tensor) -> Tensor:
        """Return the probabilities, float64, of triples with these scores and relation ids; shapes are broadcast.

        Within a relation a higher score has a higher probability. The number of triples changes no bit of any of them.
        """
        return sigmoid(self.logit(scores, relations))

    def of_triples(self, scores: Tensor, triples: Tensor) -> list[float | None]:
        """Return the probability of each of [N, 3] triples, None for one about an entity that came after the fit."""
        values: list[float] = self.probability(scores, triples[:, 1]).tolist()
        if self.covers(triples).all():
            return list(values)
        return [p if known else None for p, known in zip(values, self.covers(triples).tolist(), strict=True)]

    def covers(self, triples: Tensor) -> Tensor:
        """Return which of [N, 3] triples are about entities that the curve was fitted on alone, bool [N]."""
        return (triples[:, [0, 2]] < self.num_entities).all(1)

    def logit(self, scores: Tensor, relations: Tensor) -> Tensor:
        """Return the logarithms of the odds; see `probability`."""
        offsets = torch.cat([self.offsets, self.offsets.new_zeros(1)]).to(scores.device)
        last = len(self.offsets)  # a relation that was added after the fit has no offset
        positions = torch.where(relations < last, relations, last).to(scores.device, torch.int64)
        z = self.slope * scores.double() + self.intercept + offsets[positions]
        return z if len(self.points) == 0 else _through(z, *self.points.to(scores.device).T.contiguous())

    def to_values(self) -> dict[str, Any]:
        """Return plain values, as `calibration.json` stores them."""
        return {**self.__dict__, "offsets": self.offsets.tolist(), "points": self.points.tolist()}

    @classmethod
    def from_values(cls, values: dict[str, Any], num_entities: int, num_relations: int) -> Calibration:
        """Return what `to_values` stored; raise ValueError where a value is not what a calibration can have.

        Older versions stored no number of entities. Then it is the given one, which is also the most there may be.
        """
        offsets, points = (_numbers(values, name) for name in ("offsets", "points"))
        slope, intercept, base_rate, num_true, num_false = (_number(values, name) for name in _NUMBERS)
        covered = _number({"num_entities": num_entities, **values}, "num_entities")
        if offsets.dim() != 1 or len(offsets) > num_relations:
            raise ValueError("offsets: one number for each relation expected")
        if len(points) and (points.shape[1:] != (2,) or not bool((points.diff(dim=0) > 0).all())):
            raise ValueError("points: pairs of ascending numbers expected")
        if not 0 <= covered <= num_entities:
            raise ValueError(f"num_entities: a number from 0 to {num_entities} expected")
        if slope <= 0 or not 0 < base_rate < 1 or num_true < 0 or num_false < 0:
            raise ValueError("a slope above 0, a base rate between 0 and 1 and counts expected")
        counts = (int(num_true), int(num_false))
        return cls(slope, intercept, offsets, points, base_rate, *counts, str(values.get("negatives")), int(covered))


def num_trained(origin: Mapping[str, Any], num_entities: int) -> int:
    """Return how many of a run's entities were there when it was trained, before `extend` added others.

    `origin` is that of the run, and of what it was made of before.
    """
    while origin:
        number = origin.get("num_entities", num_entities)
        num_entities = min(num_entities, number) if isinstance(number, int) else num_entities
        origin = origin.get("before", {})
    return num_entities


def sigmoid(z: Tensor) -> Tensor:
    """Return 1 / (1 + exp(−z)); torch computes the last few numbers of a row by another function than the others."""
    padded = F.pad(z.flatten(), (0, -z.numel() % VECTOR))
    return padded.sigmoid()[: z.numel()].view(z.shape)


def _number(values: dict[str, Any], name: str) -> float:
    """Return a number; raise ValueError for anything else."""
    value = values.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{name}: a finite number expected")
    return float(value)


def _numbers(values: dict[str, Any], name: str) -> Tensor:
    """Return lists of numbers as a tensor of finite float64; raise ValueError for anything else."""
    try:
        table = torch.tensor(values.get(name), dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: numbers expected") from error
    if table.dim() == 0 or not bool(table.isfinite().all()):
        raise ValueError(f"{name}: finite numbers expected")
    return table


def _through(z: Tensor, at: Tensor, logit: Tensor) -> Tensor:
    """Return the line through the points (at, logit), both ascending, at z; beyond its ends its slope is 1."""
    inside = z.clamp(at[0], at[-1])
    right = torch.searchsorted(at, inside.contiguous()).clamp(1, max(1, len(at) - 1))
    if len(at) == 1:
        return logit[0] + z - inside
    share = (inside - at[right - 1]) / (at[right] - at[right - 1])
    return logit[right - 1] + share * (logit[right] - logit[right - 1]) + (z - inside)
