"""Models whose relations move an entity, in a space of their own or not: TransE and its successors, and SE.

Where a paper allows either norm, `metric` is the one of its best results, and `model.norm` chooses the other.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.graph import Graph
from pairre.models.contract import Query
from pairre.models.projection import MatrixProjection, product
from pairre.models.scoring import Model
from pairre.support.randomness import bits, key


class _Translation(Model):
    """A translation: q = h + r and q = t − r, with h and t as `prepare` returns them."""

    relation_parts = {"vector": 1}

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q = h + r."""
        return h + r.vector, None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q = t − r."""
        return t - r.vector, None


class TransE(_Translation):
    """score(h, r, t) = −‖h + r − t‖ (Bordes et al., NeurIPS 2013)."""

    name = "transe"
    formula = "−‖h + r − t‖₁"
    paper = "Bordes et al., NeurIPS 2013"
    patterns = frozenset({"antisymmetry", "inverse", "composition"})
    metric = "l1"
    other_metrics = ("l2",)


class TransH(Model):
    """score(h, r, t) = −‖h⊥ + r⊥ − t⊥‖₂, e⊥ = e − (n·e) n, n the normal of r's hyperplane (Wang et al., AAAI 2014)."""

    name = "transh"
    formula = "−‖h⊥ + r⊥ − t⊥‖₂, e⊥ = e − (n̂·e) n̂"
    paper = "Wang et al., AAAI 2014"
    patterns = frozenset({"antisymmetry", "inverse", "composition"})
    metric = "l2"
    other_metrics = ("l1",)
    relation_parts = {"vector": 1, "normal": 1}
    projects_entities = True

    def prepare(self, e: Any, r: Any) -> Tensor:
        """Return e⊥."""
        return _off(e.vector, r.normal)

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q = h⊥ + r⊥."""
        return h + _off(r.vector, r.normal), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q = t⊥ − r⊥."""
        return t - _off(r.vector, r.normal), None


def _off(x: Tensor, normal: Tensor) -> Tensor:
    """Return x without its part along a normal."""
    n = F.normalize(normal, dim=-1)
    return x - (x * n).sum(-1, keepdim=True) * n


class TransR(MatrixProjection, _Translation):
    """score(h, r, t) = −‖M h + r − M t‖₂ with a matrix M of the relation (Lin et al., AAAI 2015)."""

    name = "transr"
    formula = "−‖M h + r − M t‖₂, M in R^{d×d}"
    paper = "Lin et al., AAAI 2015"
    patterns = frozenset({"antisymmetry", "inverse", "composition", "subrelation"})
    metric = "l2"
    other_metrics = ("l1",)
    relation_parts = {"vector": 1, "matrix": lambda dim: dim * dim}
    matrix_parts = frozenset({"matrix"})

    def init_from_graph(self, graph: Graph, seed: int) -> None:
        """Start matrices as the identity, with which the score is that of TransE."""
        super().init_from_graph(graph, seed)
        with torch.no_grad():
            self.relation[:, self.dim :] = torch.eye(self.dim).flatten()

    def prepare(self, e: Any, r: Any) -> Tensor:
        """Return M e."""
        return product(r.matrix, e.vector)


class TranSparseShare(TransR):
    """score(h, r, t) = −‖M h + r − M t‖₂ with a sparse matrix M of the relation (Ji et al., AAAI 2016).

    Of the entries of M, a fraction of 1 − (1 − θ) N / N_max is 0, for N triples of the relation and N_max of the most
    frequent one. The diagonal is always kept, the other zeros are drawn at random. The zeros are the pattern: an entry
    that is 0 gets no gradient and stays 0.
    """

    name = "transparse-share"
    formula = "−‖M h + r − M t‖₂, M in R^{d×d}, the sparser the rarer r is"
    paper = "Ji et al., AAAI 2016"
    least_sparse: ClassVar[float] = 0.3  # θ, the fraction of zeros of the most frequent relation; the paper tunes it

    def parts(self, table: str, rows: Tensor) -> SimpleNamespace:
        """Return rows of a table as a namespace of their named parts; no gradient reaches the zeros of a matrix."""
        found = super().parts(table, rows)
        if table == "relation" and rows.requires_grad:
            vars(found).update({name: _Kept.apply(getattr(found, name)) for name in self.matrix_parts})  # type: ignore[no-untyped-call]
        return found

    def sizes(self, triples: Tensor) -> dict[str, Tensor]:
        """Return N of every relation, for each of its matrices."""
        return {"matrix": torch.bincount(triples[:, 1], minlength=self.num_relations)}

    def init_from_graph(self, graph: Graph, seed: int) -> None:
        """Start matrices as the identity, with a hundredth of the draw at the other entries that are kept."""
        sizes = self.sizes(graph.train.long())
        most = max(1, *(int(n.max()) for n in sizes.values()))
        places = torch.arange(self.dim**2, device=self.relation.device)
        for row, table in enumerate(self.relation.detach()):
            parts = self.parts("relation", table)
            swapped = row >= self.num_relations  # r⁻¹ has r's tails for heads
            for name, n in zip(sizes, list(sizes.values())[:: -1 if swapped else 1], strict=True):
                zeros = 1 - (1 - self.least_sparse) * int(n[row % self.num_relations]) / most
                order = bits(key(seed, "zeros", name, row), places)
                order[:: self.dim + 1] = torch.iinfo(order.dtype).max  # the diagonal comes last
                matrix = getattr(parts, name).mul_(0.01)
                matrix[order.argsort()[: int(zeros * len(places))]] = 0
                matrix[:: self.dim + 1] = 1


class _Kept(torch.autograd.Function):
    """A sparse matrix as it is, with no gradient where it is 0."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(matrix)
        return matrix.view_as(matrix)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (matrix,) = ctx.saved_tensors
        kept: Tensor = gradient * (matrix != 0)
        return kept


class TranSparseSeparate(TranSparseShare):
    """score(h, r, t) = −‖M_head h + r − M_tail t‖₂ with two sparse matrices of the relation (Ji et al., AAAI 2016).

    As `transparse-share`, with N the number of different heads for M_head and of different tails for M_tail, and N_max
    the largest of all.
    """

    name = "transparse-separate"
    formula = "−‖M_head h + r − M_tail t‖₂, M in R^{d×d}, the sparser the fewer entities r has on that side"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse", "composition", "subrelation"})
    relation_parts = {"vector": 1, "head": lambda dim: dim * dim, "tail": lambda dim: dim * dim}
    matrix_parts = frozenset({"head", "tail"})

    def prepare(self, e: Any, r: Any) -> Tensor:
        """Return M e, with the matrix of the side that e stands on."""
        return product(getattr(r, e.side), e.vector)

    def sizes(self, triples: Tensor) -> dict[str, Tensor]:
        """Return N of every relation, for each of its matrices."""
        different = {}
        for name, column in (("head", 0), ("tail", 2)):
            linked = torch.unique(triples[:, 1] * self.num_entities + triples[:, column]) // self.num_entities
            different[name] = torch.bincount(linked, minlength=self.num_relations)
        return different


class TransD(_Translation):
    """score(h, r, t) = −‖h⊥ + r − t⊥‖₂, e⊥ = e + (e_p·e) r_p, each with a projection vector (Ji et al., ACL 2015)."""

    name = "transd"
    formula = "−‖h⊥ + r − t⊥‖₂, e⊥ = e + (e_p·e) r_p"
    paper = "Ji et al., ACL 2015"
    patterns = frozenset({"antisymmetry", "inverse", "composition"})
    metric = "l2"
    other_metrics = ("l1",)
    entity_parts = {"vector": 1, "projection": 1}
    relation_parts = {"vector": 1, "projection": 1}
    projects_entities = True

    def prepare(self, e: Any, r: Any) -> Tensor:
        """Return e⊥."""
        moved: Tensor = e.vector + (e.projection * e.vector).sum(-1, keepdim=True) * r.projection
        return moved


class SE(MatrixProjection):
    """score(h, r, t) = −‖M_head h − M_tail t‖₁ with two matrices of the relation (Bordes et al., AAAI 2011)."""

    name = "se"
    formula = "−‖M_head h − M_tail t‖₁, M in R^{d×d}"
    paper = "Bordes et al., AAAI 2011"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse", "composition", "subrelation"})
    metric = "l1"
    other_metrics = ("l2",)
    relation_parts = {"head": lambda dim: dim * dim, "tail": lambda dim: dim * dim}
    matrix_parts = frozenset({"head", "tail"})

    def prepare(self, e: Any, r: Any) -> Tensor:
        """Return M e, with the matrix of the side that e stands on."""
        return product(getattr(r, e.side), e.vector)

    def tail_query(self, h: Tensor, r: Any) -> Query:  # noqa: ARG002
        """Return q = M_head h."""
        return h, None

    def head_query(self, r: Any, t: Tensor) -> Query:  # noqa: ARG002
        """Return q = M_tail t."""
        return t, None
