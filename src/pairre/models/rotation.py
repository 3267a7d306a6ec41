"""A relation turns an entity: feature by feature in the complex plane (RotatE), or by groups of features (OTE).

Complex rows are a real half and an imaginary half.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pairre.models.base import Model, Query
from pairre.ops.reference.compare import root, total


class RotatE(Model):
    """score(h, r, t) = −Σ |h ∘ e^{iθ} − t| over complex features, θ the phases of r (Sun et al., ICLR 2019).

    The released code scales phases so that the uniform initialisation covers ±π; here phases are learnt as they are.
    """

    name = "rotate"
    formula = "−Σ |h ∘ e^{iθ} − t|, h and t complex"
    paper = "Sun et al., ICLR 2019"
    kind = "modulus"
    entity_parts = {"real": 1, "imaginary": 1}
    relation_parts = {"phase": 1}

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Both halves."""
        return torch.cat([e.real, e.imaginary], -1)

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """q = h ∘ e^{iθ}."""
        return turned(h, r.phase), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """q = t ∘ e^{−iθ}."""
        return turned(t, -r.phase), None


def turned(x: Tensor, phase: Tensor) -> Tensor:
    """x ∘ e^{i phase}."""
    real, imaginary = x.chunk(2, -1)
    cosine, sine = phase.cos(), phase.sin()
    return torch.cat([real * cosine - imaginary * sine, real * sine + imaginary * cosine], -1)


class RotatEPair(RotatE):
    """score(h, r, t) = −Σ |h ∘ e^{ia} − t ∘ e^{ib}|: RotatE with a pair of phases (Chao et al., ACL 2021, ablation).

    |h e^{ia} − t e^{ib}| = |h e^{i(a−b)} − t|, so its scores are RotatE's with the difference of the phases: what the
    paper measured with it is what the parametrisation does to the optimisation.
    """

    name = "rotate+pair"
    formula = "−Σ |h ∘ e^{ia} − t ∘ e^{ib}|, h and t complex"
    paper = "Chao et al., ACL 2021"
    relation_parts = {"head": 1, "tail": 1}

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """q = h ∘ e^{ia}, w = e^{ib}."""
        return turned(h, r.head), torch.cat([r.tail.cos(), r.tail.sin()], -1)

    def head_query(self, r: Any, t: Tensor) -> Query:
        """q = t ∘ e^{ib}, w = e^{ia}."""
        return turned(t, r.tail), torch.cat([r.head.cos(), r.head.sin()], -1)


class OTE(Model):
    """score(h, r, t) = −Σ_g ‖e^{s_g} ∘ Φ(M_g) h_g − t_g‖₂ over groups of features (Tang et al., ACL 2020).

    Φ orthogonalises a group's matrix by Gram–Schmidt. Asked for heads, the distance is ‖e^{−s} ∘ Φ(M)ᵀ t − h‖: the
    scales make it differ from the other, and the paper trains and ranks each side with its own. Groups have 20 features
    as in the paper, or the largest divisor of `model.dim` below that.
    """

    name = "ote"
    formula = "−Σ_g ‖e^{s} ∘ Φ(M) h − t‖₂ over groups of features, Φ(M) orthogonal"
    paper = "Tang et al., ACL 2020"
    kind = None
    relation_parts = {"matrix": lambda dim: dim * group_size(dim), "scale": 1}
    directional = True

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """q = e^{s} ∘ Φ(M) h."""
        turned = torch.einsum("...gij,...gj->...gi", self._turn(r), self._groups(h))
        return turned.flatten(-2) * r.scale.exp(), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """q = e^{−s} ∘ Φ(M)ᵀ t."""
        turned = torch.einsum("...gij,...gi->...gj", self._turn(r), self._groups(t))
        return turned.flatten(-2) * (-r.scale).exp(), None

    def meet(self, q: Tensor, w: Tensor | None, c: Tensor) -> Tensor:  # noqa: ARG002
        """Minus the sum of the groups' Euclidean distances."""
        x = self._groups(q - c)
        return -total(root(total(x * x)))

    def _groups(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], -1, group_size(self.dim))

    def _turn(self, r: Any) -> Tensor:
        """Φ(M) of every group, by Gram–Schmidt over its rows."""
        size = group_size(self.dim)
        rows: list[Tensor] = []
        for row in r.matrix.reshape(*r.matrix.shape[:-1], -1, size, size).unbind(-2):
            for other in rows:
                row = row - (row * other).sum(-1, keepdim=True) * other
            rows.append(torch.nn.functional.normalize(row, dim=-1))
        return torch.stack(rows, -2)


def group_size(dim: int) -> int:
    """The largest divisor of a number that is at most 20."""
    return next(size for size in range(min(20, dim), 0, -1) if dim % size == 0)
