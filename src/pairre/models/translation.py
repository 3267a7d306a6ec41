"""A relation moves an entity, in a space of its own or not: TransE and what followed it, and Structured Embeddings.

Where the papers write ‖·‖ with either norm, `kind` is the one their best results used, and the other can be asked for.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from pairre.models.base import Model, Query


class _Translation(Model):
    """q = h + r and q = t − r, whatever h and t have become."""

    relation_parts = {"vector": 1}

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """q = h + r."""
        return h + r.vector, None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """q = t − r."""
        return t - r.vector, None


class TransE(_Translation):
    """score(h, r, t) = −‖h + r − t‖ (Bordes et al., NeurIPS 2013).

    The paper keeps entities on the unit sphere; code since RotatE's leaves them free, as here, and lets the margin of
    the loss bound them.
    """

    name = "transe"
    formula = "−‖h + r − t‖₁"
    paper = "Bordes et al., NeurIPS 2013"
    kind = "l1"
    kinds = ("l2",)


class TransH(Model):
    """score(h, r, t) = −‖h⊥ + r − t⊥‖₂, e⊥ = e − (n·e) n, n the unit normal of r's hyperplane (Wang et al., AAAI 2014).

    The paper squares the norm; ranks are the same. Its soft constraint that r lies in the hyperplane is exact here: r
    is projected too.
    """

    name = "transh"
    formula = "−‖h⊥ + r⊥ − t⊥‖₂, e⊥ = e − (n̂·e) n̂"
    paper = "Wang et al., AAAI 2014"
    kind = "l2"
    kinds = ("l1",)
    relation_parts = {"vector": 1, "normal": 1}
    projected = True

    def prepare(self, e: Any, r: Any) -> Tensor:
        """e⊥."""
        return _off(e.vector, r.normal)

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """q = h⊥ + r⊥."""
        return h + _off(r.vector, r.normal), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """q = t⊥ − r⊥."""
        return t - _off(r.vector, r.normal), None


def _off(x: Tensor, normal: Tensor) -> Tensor:
    """x without its part along a normal."""
    n = F.normalize(normal, dim=-1)
    return x - (x * n).sum(-1, keepdim=True) * n


class TransR(_Translation):
    """score(h, r, t) = −‖M h + r − M t‖₂ with a matrix M of the relation (Lin et al., AAAI 2015).

    Entities and relations have the same number of features here; the paper's best settings have it so too.
    """

    name = "transr"
    formula = "−‖M h + r − M t‖₂, M in R^{d×d}"
    paper = "Lin et al., AAAI 2015"
    kind = "l2"
    kinds = ("l1",)
    relation_parts = {"vector": 1, "matrix": lambda dim: dim * dim}
    projected = True

    def prepare(self, e: Any, r: Any) -> Tensor:
        """M e."""
        return _product(r.matrix, e.vector)


def _product(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrices [..., d·d], row by row, times vectors [..., d]; leading dimensions broadcast."""
    dim = vector.shape[-1]
    square = matrix.reshape(*matrix.shape[:-1], dim, dim)
    if square.dim() == 2:  # one matrix for all
        return vector @ square.t()
    if square.shape[-3] == 1:  # one matrix for each row of vectors
        return vector @ square.squeeze(-3).mT
    return (square @ vector.unsqueeze(-1)).squeeze(-1)


class TransD(_Translation):
    """score(h, r, t) = −‖h⊥ + r − t⊥‖₂, e⊥ = e + (e_p·e) r_p, each with a projection vector (Ji et al., ACL 2015)."""

    name = "transd"
    formula = "−‖h⊥ + r − t⊥‖₂, e⊥ = e + (e_p·e) r_p"
    paper = "Ji et al., ACL 2015"
    kind = "l2"
    kinds = ("l1",)
    entity_parts = {"vector": 1, "projection": 1}
    relation_parts = {"vector": 1, "projection": 1}
    projected = True

    def prepare(self, e: Any, r: Any) -> Tensor:
        """e⊥."""
        moved: Tensor = e.vector + (e.projection * e.vector).sum(-1, keepdim=True) * r.projection
        return moved


class SE(Model):
    """score(h, r, t) = −‖M_head h − M_tail t‖₁ with two matrices of the relation (Bordes et al., AAAI 2011)."""

    name = "se"
    formula = "−‖M_head h − M_tail t‖₁, M in R^{d×d}"
    paper = "Bordes et al., AAAI 2011"
    kind = "l1"
    kinds = ("l2",)
    relation_parts = {"head": lambda dim: dim * dim, "tail": lambda dim: dim * dim}
    projected = True

    def prepare(self, e: Any, r: Any) -> Tensor:
        """M e, with the matrix of the side that e stands on."""
        return _product(getattr(r, r.side), e.vector)

    def tail_query(self, h: Tensor, r: Any) -> Query:  # noqa: ARG002
        """q = M_head h."""
        return h, None

    def head_query(self, r: Any, t: Tensor) -> Query:  # noqa: ARG002
        """q = M_tail t."""
        return t, None
