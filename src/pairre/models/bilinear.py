"""Models whose scores are linear in head and in tail: a dot product of a candidate with a query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pairre.models.contract import Query
from pairre.models.scoring import Model


class RESCAL(Model):
    """score(h, r, t) = hᵀ M t with a matrix of the relation (Nickel et al., ICML 2011)."""

    name = "rescal"
    formula = "hᵀ M t, M in R^{d×d}"
    paper = "Nickel et al., ICML 2011"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse"})
    metric = "dot"
    linear_in_relation = True
    relation_parts = {"matrix": lambda dim: dim * dim}

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q = Mᵀ h."""
        return torch.einsum("...i,...ij->...j", h, self._matrix(r)), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q = M t."""
        return torch.einsum("...ij,...j->...i", self._matrix(r), t), None

    def _matrix(self, r: Any) -> Tensor:
        matrix: Tensor = r.matrix.reshape(*r.matrix.shape[:-1], self.dim, self.dim)
        return matrix


class DistMult(Model):
    """score(h, r, t) = Σ h ∘ r ∘ t (Yang et al., ICLR 2015), symmetric in h and t."""

    name = "distmult"
    formula = "Σ h ∘ r ∘ t"
    paper = "Yang et al., ICLR 2015"
    patterns = frozenset({"symmetry"})
    metric = "dot"
    linear_in_relation = True
    relation_parts = {"vector": 1}

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q = h ∘ r."""
        return h * r.vector, None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q = t ∘ r."""
        return t * r.vector, None


class HolE(Model):
    """score(h, r, t) = r · (h ⋆ t) with the circular correlation (h ⋆ t)_k = Σ_i h_i t_{(i + k) mod d}.

    Nickel et al., AAAI 2016. By Fourier transforms a query costs d log d.
    """

    name = "hole"
    formula = "r · (h ⋆ t), (h ⋆ t)_k = Σ_i h_i t_{i+k}"
    paper = "Nickel et al., AAAI 2016"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse"})
    metric = "dot"
    linear_in_relation = True
    relation_parts = {"vector": 1}

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q_j = Σ_i h_i r_{j−i}: a circular convolution."""
        return _inverse(torch.fft.rfft(h) * torch.fft.rfft(r.vector), self.dim), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q_i = Σ_k r_k t_{i+k}: a circular correlation."""
        return _inverse(torch.fft.rfft(r.vector).conj() * torch.fft.rfft(t), self.dim), None


def _inverse(spectrum: Tensor, dim: int) -> Tensor:
    values: Tensor = torch.fft.irfft(spectrum, n=dim)
    return values


class ComplEx(Model):
    """score(h, r, t) = Re Σ h ∘ r ∘ conj(t) over complex features (Trouillon et al., ICML 2016)."""

    name = "complex"
    formula = "Re Σ h ∘ r ∘ conj(t), all complex"
    paper = "Trouillon et al., ICML 2016"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse"})
    metric = "dot"
    linear_in_relation = True
    num_components = 2
    entity_parts = {"vector": 2}  # real parts, then imaginary ones
    relation_parts = {"real": 1, "imaginary": 1}

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q = h ∘ r."""
        return _complex_product(h, r.real, r.imaginary), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q = t ∘ conj(r)."""
        return _complex_product(t, r.real, -r.imaginary), None


def _complex_product(x: Tensor, real: Tensor, imaginary: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * real - b * imaginary, a * imaginary + b * real], -1)


class CP(Model):
    """score(h, r, t) = Σ h.head ∘ r ∘ t.tail (Hitchcock, 1927; Lacroix et al., ICML 2018).

    An entity has a vector for each side it can stand on; only with reciprocal relations do they learn of each other.
    """

    name = "cp"
    formula = "Σ h.head ∘ r ∘ t.tail"
    paper = "Lacroix et al., ICML 2018"
    patterns = frozenset({"antisymmetry"})
    metric = "dot"
    linear_in_relation = True
    entity_parts = {"head": 1, "tail": 1}
    relation_parts = {"vector": 1}
    tail_query, head_query = DistMult.tail_query, DistMult.head_query

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Return the vector of the side that e stands on."""
        vector: Tensor = getattr(e, e.side)
        return vector

    def as_vectors(self, rows: Tensor) -> Tensor:
        """Return both vectors."""
        return rows


class SimplE(Model):
    """score(h, r, t) = ½ (Σ h.head ∘ r ∘ t.tail + Σ t.head ∘ r⁻¹ ∘ h.tail) (Kazemi & Poole, NeurIPS 2018).

    An entity has a vector for each side it can stand on, a relation one for each direction.
    """

    name = "simple"
    formula = "½ (Σ h.head ∘ r ∘ t.tail + Σ t.head ∘ r⁻¹ ∘ h.tail)"
    paper = "Kazemi & Poole, NeurIPS 2018"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse"})
    metric = "dot"
    linear_in_relation = True
    entity_parts = {"head": 1, "tail": 1}
    relation_parts = {"forward": 1, "inverse": 1}

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Return both vectors."""
        return torch.cat([e.head, e.tail], -1)

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return the query that is compared with (t.head, t.tail)."""
        head, tail = h.chunk(2, -1)
        return torch.cat([r.inverse * tail, r.forward * head], -1) / 2, None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return the query that is compared with (h.head, h.tail)."""
        head, tail = t.chunk(2, -1)
        return torch.cat([r.forward * tail, r.inverse * head], -1) / 2, None


class SimplEPlus(SimplE):
    """SimplE with entities ≥ 0 (Fatemi et al., AAAI 2019): then r₁ ≤ r₂ feature by feature makes r₁ imply r₂.

    Entities are cut off at 0 after every step. A relation gets δ ≥ 0 more than the largest of all that imply it.
    """

    name = "simple+"
    formula = "½ (Σ h.head ∘ r ∘ t.tail + Σ t.head ∘ r⁻¹ ∘ h.tail), entities ≥ 0"
    paper = "Fatemi et al., AAAI 2019"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse", "subrelation"})
    constraints = {"entity": lambda _, rows: rows.clamp(min=0)}
    rule_modes = frozenset({"tie"})

    def implied(self, stored: Tensor, bodies: Tensor) -> Tensor:
        """Return the largest of the bodies in each feature, and δ ≥ 0 more."""
        return bodies.amax(1) + stored.abs()


class ComplExNNE(ComplEx):
    """ComplEx with entities in [0, 1] (Ding et al., ACL 2018): non-negative parts that can be read as properties.

    Entities are brought into the bounds after every step.
    """

    name = "complex-nne"
    formula = "Re Σ h ∘ r ∘ conj(t), all complex, parts of entities in [0, 1]"
    paper = "Ding et al., ACL 2018"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse", "subrelation"})
    constraints = {"entity": lambda _, rows: rows.clamp(0, 1)}


class ComplExNNEAER(ComplExNNE):
    """ComplEx-NNE with approximate entailment of relations (Ding et al., ACL 2018); without rules it is ComplEx-NNE.

    A rule p ⇒ q of confidence λ adds μ λ (Σ max(0, Re p − Re q) + Σ (Im p − Im q)²) to the loss: were it 0, no triple
    of q would score below that of p. A rule that p implies the inverse of q has conj(q) in place of q.
    """

    name = "complex-nne-aer"
    formula = "Re Σ h ∘ r ∘ conj(t), all complex, parts of entities in [0, 1], rules as penalties"
    rule_modes = frozenset({"soft"})

    def rule_penalty(self, inverse: bool, body: Any, conclusion: Any) -> Tensor:
        """Return Σ max(0, Re b − Re c) + Σ (Im b − Im c)², c conjugated for an inverse rule."""
        imaginary = -conclusion.imaginary if inverse else conclusion.imaginary
        gaps: Tensor = (body.real - conclusion.real).clamp(min=0) + (body.imaginary - imaginary).square()
        return gaps.sum(-1)


class SeeK(Model):
    """score(h, r, t) = Σ_{x,y} s_xy ⟨r_x, h_y, t_w⟩ over k segments of the vectors (Xu et al., ACL 2020).

    w = y for even x and (x + y) mod k for odd x; s = −1 for odd x with x + y ≥ k, else 1. One segment is DistMult, two
    are ComplEx up to signs; here k = 4 where it divides `model.dim`, else 2 or 1.
    """

    name = "seek"
    formula = "Σ_{x,y} s_xy ⟨r_x, h_y, t_w⟩ over k = 4 segments, w = y or (x + y) mod k"
    paper = "Xu et al., ACL 2020"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse"})
    metric = "dot"
    linear_in_relation = True
    relation_parts = {"vector": 1}

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q_w = Σ s_xy r_x ∘ h_y."""
        return self._sum(h, r.vector, lambda y, w: (w, y)), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q_y = Σ s_xy r_x ∘ t_w."""
        return self._sum(t, r.vector, lambda y, w: (y, w)), None

    def _sum(self, e: Tensor, r: Tensor, places: Callable[[int, int], tuple[int, int]]) -> Tensor:
        """Return the segments of a query; `places` says which segment of it comes from which of the entity."""
        k = next(number for number in (4, 2, 1) if self.dim % number == 0)
        entity, relation = e.chunk(k, -1), r.chunk(k, -1)
        segments: list[Tensor | float] = [0.0] * k
        for x in range(k):
            for y in range(k):
                to, source = places(y, (x + y) % k if x % 2 else y)
                sign = -1 if x % 2 and x + y >= k else 1
                segments[to] = segments[to] + sign * relation[x] * entity[source]
        return torch.cat([s for s in segments if isinstance(s, Tensor)], -1)


class QuatE(Model):
    """score(h, r, t) = Σ (h ⊗ r̂) · t over quaternions, r̂ = r / |r| (Zhang et al., NeurIPS 2019).

    Rows are four parts of the quaternions; ⊗ is Hamilton's product, and each quaternion of r is made a unit.
    """

    name = "quate"
    formula = "Σ (h ⊗ r̂) · t over quaternions, r̂ = r / |r|"
    paper = "Zhang et al., NeurIPS 2019"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse"})
    metric = "dot"
    num_components = 4
    entity_parts = {"vector": 4}  # the four parts, one after another
    relation_parts = {"one": 1, "i": 1, "j": 1, "k": 1}

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q = h ⊗ r̂."""
        return _hamilton(h, r, 1), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q = t ⊗ conj(r̂): multiplying by a unit and by its conjugate undo each other and keep dot products."""
        return _hamilton(t, r, -1), None


def _hamilton(x: Tensor, r: Any, sign: int) -> Tensor:
    """Return x ⊗ r̂, or with sign −1 x ⊗ conj(r̂)."""
    a, b, c, d = x.chunk(4, -1)
    length = torch.stack([r.one, r.i, r.j, r.k]).square().sum(0).sqrt().clamp(min=1e-12)
    p, q, u, v = r.one / length, sign * r.i / length, sign * r.j / length, sign * r.k / length
    return torch.cat(
        [
            a * p - b * q - c * u - d * v,
            a * q + b * p + c * v - d * u,
            a * u - b * v + c * p + d * q,
            a * v + b * u - c * q + d * p,
        ],
        -1,
    )
