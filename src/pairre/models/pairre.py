"""PairRE and its best-known descendant: an entity on each side is scaled by a vector of the relation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pairre.graph import Side
from pairre.kernels import backend
from pairre.models.contract import Query
from pairre.models.scoring import Model


class PairRE(Model):
    """score(h, r, t) = −‖ĥ ∘ r.head − t̂ ∘ r.tail‖₁ with ê = e / ‖e‖₂ (Chao et al., ACL 2021).

    Both directions are one operation: a query `q` with a scale `w` scores a candidate `c` as −Σ |q − w c|.
    """

    name = "pairre"
    formula = "−‖ĥ ∘ r.head − t̂ ∘ r.tail‖₁, ê = e / ‖e‖₂"
    paper = "Chao et al., ACL 2021"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse", "composition", "subrelation"})
    metric = "l1"
    relation_parts = {"head_scale": 1, "tail_scale": 1}
    rule_modes = frozenset({"tie", "soft"})
    fused_batch_kernel = "pairre_batch_scores"

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Put entity rows on the unit sphere."""
        return backend(e.vector.device.type).unit_rows(e.vector)

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q = ĥ ∘ r.head and w = r.tail."""
        return h * r.head_scale, r.tail_scale

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q = t̂ ∘ r.tail and w = r.head."""
        return t * r.tail_scale, r.head_scale

    def implied(self, stored: Tensor, bodies: Tensor) -> Tensor:
        """Return r.head = b.head ∘ cos θ and r.tail = b.tail ∘ cos θ, b the smallest of the bodies in each feature.

        The bodies are multiples of each other, so what is at most as large as the smallest is so for all.
        """
        b = self.parts("relation", bodies)
        least = (b.head_scale.abs() + b.tail_scale.abs()).argmin(1, keepdim=True)  # [n, 1, D]
        scale = self.parts("relation", stored).head_scale.cos()
        return torch.cat([part.gather(1, least)[:, 0] * scale for part in (b.head_scale, b.tail_scale)], -1)

    def aligned(self, stored: Tensor, first: Tensor) -> Tensor:
        """Return a multiple of `first` in each feature: only multiples of each other can imply the same relation."""
        f, scale = self.parts("relation", first), 1 + self.parts("relation", stored).head_scale
        return torch.cat([f.head_scale * scale, f.tail_scale * scale], -1)

    def rule_penalty(self, inverse: bool, body: Any, conclusion: Any) -> Tensor:
        """Return ‖b.head ∘ c.tail − b.tail ∘ c.head‖², or for an inverse rule ‖b.head ∘ c.head − b.tail ∘ c.tail‖²."""
        first, second = conclusion.tail_scale, conclusion.head_scale
        if inverse:
            first, second = second, first
        gap: Tensor = body.head_scale * first - body.tail_scale * second
        return gap.square().sum(-1)

    def score_relation_rows(self, side: Side, ends: Tensor, relations: Tensor) -> Tensor:
        """Return what any model returns, by a kernel: pairs of entities are queries, pairs of scales candidates."""
        h, t = ends.chunk(2) if self.candidate_side[side] == "tail" else reversed(ends.chunk(2))
        r, kernels = self.parts("relation", relations), backend(ends.device.type)
        return kernels.score_candidates(
            "l1", kernels.unit_rows(h), kernels.unit_rows(t), r.tail_scale, weights=r.head_scale
        )


class TripleRE(Model):
    """score(h, r, t) = −‖ĥ ∘ (r.head + 1) − t̂ ∘ (r.tail + 1) + r.middle‖₁ with ê = e / ‖e‖₂ (Yu et al., 2022)."""

    name = "triplere"
    formula = "−‖ĥ ∘ (r.head + 1) − t̂ ∘ (r.tail + 1) + r.middle‖₁, ê = e / ‖e‖₂"
    paper = "Yu et al., 2022"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse", "composition", "subrelation"})
    metric = "l1"
    relation_parts = {"head_scale": 1, "middle": 1, "tail_scale": 1}

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Put entity rows on the unit sphere."""
        return backend(e.vector.device.type).unit_rows(e.vector)

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q = ĥ ∘ (r.head + 1) + r.middle and w = r.tail + 1."""
        return h * (r.head_scale + 1) + r.middle, r.tail_scale + 1

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q = t̂ ∘ (r.tail + 1) − r.middle and w = r.head + 1."""
        return t * (r.tail_scale + 1) - r.middle, r.head_scale + 1
