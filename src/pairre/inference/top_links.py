"""The best links so far of a search over all missing triples, in an order that is the same whatever was found first.

H links, R relations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pairre.runs import Calibration
from pairre.support.processes import Processes


@dataclass(frozen=True)
class Order:
    """The order of links: by the odds of their calibrated probability, or by score where a run has no calibration."""

    calibration: Calibration | None

    def keys(self, scores: Tensor, relations: Tensor) -> Tensor:
        """Return a float64 for each score; a larger one comes first, and it never falls as the score rises."""
        return scores.double() if self.calibration is None else self.calibration.logit(scores, relations)

    def least_score(self, key: float, relation: int) -> float:
        """Return a score that no link of a relation with such a key, or a larger one, is below; nearly the largest."""
        if self.calibration is None or key == -torch.inf:
            return key
        powers = 4.0 ** torch.arange(-8, 50, dtype=torch.float64)
        grid = torch.cat([-powers.flip(0), powers])
        for _ in range(4):
            reached = self.keys(grid, torch.tensor(relation)) >= key
            right = int((~reached).sum())  # the first of the grid that reaches the key
            if right == 0:
                return -torch.inf
            if right == len(grid):
                return float(grid[-1])
            grid = torch.linspace(float(grid[right - 1]), float(grid[right]), 1000, dtype=torch.float64)
        return float(grid[0])


@dataclass
class TopLinks:
    """At most k links: those with the largest keys, then scores, then the smallest ids; none below the floor."""

    k: int
    floor: float  # of keys
    keys: Tensor  # [H] float64
    scores: Tensor  # [H] float32
    triples: Tensor  # [H, 3] int64

    @classmethod
    def empty(cls, k: int, floor: float, device: torch.device) -> TopLinks:
        """Return no links."""
        none = torch.empty(0, device=device)
        return cls(k, floor, none.double(), none, torch.empty(0, 3, dtype=torch.int64, device=device))

    def with_links(self, keys: Tensor, scores: Tensor, triples: Tensor) -> TopLinks:
        """Return the best of these links and more; the floor rises to the last of k."""
        keys, scores = torch.cat([self.keys, keys]), torch.cat([self.scores, scores.float()])
        triples = torch.cat([self.triples, triples])
        order = (keys >= self.floor).nonzero()[:, 0]
        for column in (triples[:, 2], triples[:, 0], triples[:, 1]):
            order = order[column[order].argsort(stable=True)]
        for values in (scores, keys):
            order = order[values[order].argsort(descending=True, stable=True)]
        order = order[: self.k]
        keys = keys[order]
        floor = max(self.floor, float(keys[-1])) if len(keys) == self.k else self.floor
        return TopLinks(self.k, floor, keys, scores[order], triples[order])

    def of_all(self, processes: Processes) -> TopLinks:
        """Return the best of the links that all processes have."""
        nothing = TopLinks.empty(self.k, self.floor, self.keys.device)
        return nothing.with_links(*processes.gather(self.keys, self.scores, self.triples))
