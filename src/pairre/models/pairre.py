"""PairRE and its best-known descendant: an entity on each side is scaled by a vector of the relation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pairre import kernels
from pairre.graph import Side
from pairre.models.base import Model, Query, Sets


class PairRE(Model):
    """score(h, r, t) = −‖ĥ ∘ r.head − t̂ ∘ r.tail‖₁ with ê = e / ‖e‖₂ (Chao et al., ACL 2021).

    Both directions are one operation: a query `q` and a scale `w` meet a candidate `c` as −Σ |q − w c|. The paper's
    loss has the score where it means the distance; the released code, which is for the graphs of OGB, has the distance
    and weighs positives (`loss.subsampling`), but has no rules.
    """

    name = "pairre"
    formula = "−‖ĥ ∘ r.head − t̂ ∘ r.tail‖₁, ê = e / ‖e‖₂"
    paper = "Chao et al., ACL 2021"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse", "composition", "subrelation"})
    kind = "l1"
    relation_parts = {"head": 1, "tail": 1}
    rule_modes = frozenset({"tie", "soft"})

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Put entity rows on the unit sphere."""
        return kernels.unit_rows(e.vector)

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """q = ĥ ∘ r.head, w = r.tail."""
        return h * r.head, r.tail

    def head_query(self, r: Any, t: Tensor) -> Query:
        """q = t̂ ∘ r.tail, w = r.head."""
        return t * r.tail, r.head

    def implied(self, stored: Tensor, bodies: Tensor) -> Tensor:
        """r.head = b.head ∘ cos θ, r.tail = b.tail ∘ cos θ, b the smallest of the bodies, feature by feature.

        They are multiples of each other, so what is at most as large as the smallest is so for all.
        """
        b = self.parts("relation", bodies)
        least = (b.head.abs() + b.tail.abs()).argmin(1, keepdim=True)  # [n, 1, D]
        scale = self.parts("relation", stored).head.cos()
        return torch.cat([part.gather(1, least)[:, 0] * scale for part in (b.head, b.tail)], -1)

    def aligned(self, stored: Tensor, first: Tensor) -> Tensor:
        """A multiple, feature by feature: a relation can be implied by two only if these are multiples."""
        f, scale = self.parts("relation", first), 1 + self.parts("relation", stored).head
        return torch.cat([f.head * scale, f.tail * scale], -1)

    def rule_penalty(self, inverse: bool, body: Any, head: Any) -> Tensor:
        """‖b.head ∘ h.tail − b.tail ∘ h.head‖², or for the inverse ‖b.head ∘ h.head − b.tail ∘ h.tail‖²."""
        one, other = (head.head, head.tail) if inverse else (head.tail, head.head)
        gap: Tensor = body.head * one - body.tail * other
        return gap.square().sum(-1)

    def batch_scores(self, side: Side, entity: Tensor, relation: Tensor, sets: Sets) -> tuple[Tensor, Tensor]:
        """As any model's, by fewer launches where the device has a kernel for it."""
        fused = getattr(kernels.backend(entity.device.type), "pairre_scores", None)
        if fused and sets.number == 1 and sets.place is None:
            scores: tuple[Tensor, Tensor] = fused(entity, relation, self.candidate_side(side) == "tail")
            return scores
        return super().batch_scores(side, entity, relation, sets)

    def relation_scores(self, side: Side, ends: Tensor, relations: Tensor) -> Tensor:
        """As any model's, by a kernel: pairs of scales meet all pairs of relation vectors."""
        h, t = ends.chunk(2) if self.candidate_side(side) == "tail" else reversed(ends.chunk(2))
        r = self.parts("relation", relations)
        return kernels.compare("l1", kernels.unit_rows(h), kernels.unit_rows(t), r.tail, weights=r.head)


class TripleRE(Model):
    """score(h, r, t) = −‖ĥ ∘ (r.head + u) − t̂ ∘ (r.tail + u) + r.middle‖₁ (Yu et al., 2022), ê = e / ‖e‖₂.

    That is PairRE with a translation. The constant u keeps the scales away from 0; the paper's second version has it,
    here with u = 1. The authors' first code has no u; a later one of theirs adds products of both entities.
    """

    name = "triplere"
    formula = "−‖ĥ ∘ (r.head + 1) − t̂ ∘ (r.tail + 1) + r.middle‖₁, ê = e / ‖e‖₂"
    paper = "Yu et al., 2022"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse", "composition", "subrelation"})
    kind = "l1"
    relation_parts = {"head": 1, "middle": 1, "tail": 1}

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Put entity rows on the unit sphere."""
        return kernels.unit_rows(e.vector)

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """q = ĥ ∘ (r.head + 1) + r.middle, w = r.tail + 1."""
        return h * (r.head + 1) + r.middle, r.tail + 1

    def head_query(self, r: Any, t: Tensor) -> Query:
        """q = t̂ ∘ (r.tail + 1) − r.middle, w = r.head + 1."""
        return t * (r.tail + 1) - r.middle, r.head + 1
