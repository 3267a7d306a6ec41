"""Models whose entities and relations are normal distributions with diagonal covariance: KG2E."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pairre.kernels.reference.scores import Formula, has_kernel, stable_sum
from pairre.models.contract import Query, ScoreFunction
from pairre.models.scoring import Model

_LEAST, _MOST = 0.05, 5.0  # bounds of variances, the paper's


def _bounded(_: ScoreFunction, rows: Tensor) -> Tensor:
    """Return means of length at most 1 and variances within their bounds."""
    mean, variance = rows.chunk(2, -1)
    length = mean.norm(dim=-1, keepdim=True).clamp(min=1)
    return torch.cat([mean / length, variance.clamp(_LEAST, _MOST)], -1)


class KG2E(Model):
    """score(h, r, t) = log ∫ N(x; μh − μt, Σh + Σt) N(x; μr, Σr) dx, the expected likelihood (He et al., CIKM 2015).

    With m = μh − μt − μr and V = Σh + Σt + Σr: −½ Σ (m² / V + log V + log 2π). After every
    step, means are brought to a length of at most 1 and variances into [0.05, 5].
    """

    name = "kg2e"
    formula = "−½ Σ (m² / V + log 2πV), m = μh − μt − μr, V = Σh + Σt + Σr"
    paper = "He et al., CIKM 2015"
    patterns = frozenset({"antisymmetry", "inverse", "composition", "subrelation"})
    metric = None
    entity_parts = {"mean": 1, "variance": 1}
    relation_parts = {"mean": 1, "variance": 1}
    constraints = {"entity": _bounded, "relation": _bounded}

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Return mean and variance."""
        return torch.cat([e.mean, e.variance], -1)

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q = (μh − μr, Σh) and w = Σr."""
        mean, variance = h.chunk(2, -1)
        return torch.cat([mean - r.mean, variance], -1), r.variance

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q = (μt + μr, Σt) and w = Σr."""
        mean, variance = t.chunk(2, -1)
        return torch.cat([mean + r.mean, variance], -1), r.variance

    @has_kernel(lambda _: Formula("likelihood", 8))
    def pair_score(self, q: Tensor, w: Tensor | None, c: Tensor) -> Tensor:
        """Return the log of the expected likelihood."""
        assert w is not None
        (a, s), (b, v) = q.chunk(2, -1), c.chunk(2, -1)
        m, variance = a - b, s + v + w
        return -stable_sum(m * m / variance + variance.log() + math.log(2 * math.pi)) / 2


class KG2EKL(KG2E):
    """score(h, r, t) = −KL(N(μh − μt, Σh + Σt) ‖ N(μr, Σr)) (He et al., CIKM 2015).

    With m = μh − μt − μr and S = (Σh + Σt) / Σr: −½ Σ (S + m² / Σr − log S − 1). The rest is as in KG2E.
    """

    name = "kg2e-kl"
    formula = "−½ Σ (S + m² / Σr − log S − 1), m = μh − μt − μr, S = (Σh + Σt) / Σr"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse", "composition", "subrelation"})

    @has_kernel(lambda _: Formula("divergence", 8))
    def pair_score(self, q: Tensor, w: Tensor | None, c: Tensor) -> Tensor:
        """Return minus the divergence."""
        assert w is not None
        (a, s), (b, v) = q.chunk(2, -1), c.chunk(2, -1)
        m, ratio = a - b, (s + v) / w
        return -stable_sum(ratio + m * m / w - ratio.log() - 1) / 2
