"""Models whose relations turn an entity: feature by feature in the complex plane (RotatE), or in groups (OTE).

Complex rows are a real half and an imaginary half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.kernels.reference.scores import Formula, has_kernel, safe_sqrt, stable_sum
from pairre.models.contract import IdsByTable, Query, RowsByTable
from pairre.models.scoring import Model, RowSource


class RotatE(Model):
    """score(h, r, t) = −Σ |h ∘ e^{iθ} − t| over complex features, θ the phases of r (Sun et al., ICLR 2019).

    A relation row holds phases in units in which the initial draw, uniform in ± the bound, covers ±π: a step of Adam
    then turns by as much as it moves, in proportion.
    """

    name = "rotate"
    formula = "−Σ |h ∘ e^{iθ} − t|, h and t complex"
    paper = "Sun et al., ICLR 2019"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse", "composition"})
    metric = "modulus"
    entity_parts = {"vector": 2}  # real parts, then imaginary ones
    relation_parts = {"phase": 1}
    bound_is_unit = True
    turn = 1.0  # the phase of a 1 in a row

    def attach(self, graph: Graph, bound: float, seed: int) -> None:
        """Set the unit of phases, so that the initial draw in ±bound covers ±π."""
        super().attach(graph, bound, seed)
        self.turn = math.pi / bound

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q = h ∘ e^{iθ}."""
        return turned(h, self.turn * r.phase), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q = t ∘ e^{−iθ}."""
        return turned(t, -self.turn * r.phase), None


def turned(x: Tensor, phase: Tensor) -> Tensor:
    """Return x ∘ e^{i phase}."""
    real, imaginary = x.chunk(2, -1)
    cosine, sine = phase.cos(), phase.sin()
    return torch.cat([real * cosine - imaginary * sine, real * sine + imaginary * cosine], -1)


class RotatEPair(RotatE):
    """score(h, r, t) = −Σ |h ∘ e^{ia} − t ∘ e^{ib}|: RotatE with a pair of phases (Chao et al., ACL 2021, ablation).

    |h e^{ia} − t e^{ib}| = |h e^{i(a−b)} − t|, so its scores are those of RotatE with the difference of the phases.
    """

    name = "rotate+pair"
    formula = "−Σ |h ∘ e^{ia} − t ∘ e^{ib}|, h and t complex"
    paper = "Chao et al., ACL 2021"
    relation_parts = {"head": 1, "tail": 1}

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q = h ∘ e^{ia} and w = e^{ib}."""
        return self._pair(h, r.head, r.tail)

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q = t ∘ e^{ib} and w = e^{ia}."""
        return self._pair(t, r.tail, r.head)

    def _pair(self, x: Tensor, own: Tensor, other: Tensor) -> Query:
        phase = self.turn * other
        return turned(x, self.turn * own), torch.cat([phase.cos(), phase.sin()], -1)


class OrthogonalRows(RowSource):
    """Relation rows of OTE with Φ(M) in the place of M; all of them are made, since there are few."""

    def __init__(self, model: OTE, stored: RowSource) -> None:
        self._model, self._stored = model, stored
        self.num_rows, self.width = stored.num_rows, stored.width

    def gather(self, ids: Tensor) -> Tensor:
        """Return the rows of some ids."""
        return F.embedding(ids, self._model.prepare_relations(self._stored.gather(self._every(ids.device))))

    def chunks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the rows that are held here in chunks of at most `size`, each with the id of its first."""
        for start, rows in self._stored.chunks(size):
            yield start, self._model.prepare_relations(rows)

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Store rows as they are before that."""
        self._stored.write(ids, rows)

    def _every(self, device: torch.device) -> Tensor:
        return torch.arange(self.num_rows, device=device)


class OTE(Model):
    """score(h, r, t) = −Σ_g ‖e^{s_g} ∘ Φ(M_g) h_g − t_g‖₂ over groups of features (Tang et al., ACL 2020).

    Φ orthogonalises the matrix of a group by Gram–Schmidt. A query for heads has the distance ‖e^{−s} ∘ Φ(M)ᵀ t − h‖,
    which differs from the other because of the scales: each side is trained and ranked with its own. A group has 20
    features, or the largest divisor of `model.dim` below that.
    """

    name = "ote"
    formula = "−Σ_g ‖e^{s} ∘ Φ(M) h − t‖₂ over groups of features, Φ(M) orthogonal"
    paper = "Tang et al., ACL 2020"
    patterns = frozenset({"symmetry", "antisymmetry", "inverse", "composition"})
    metric = None
    relation_parts = {"matrix": lambda dim: dim * group_size(dim), "scale": 1}
    sides_differ = True
    needs_other_rows = True

    def init_from_graph(self, graph: Graph, seed: int) -> None:
        """Start matrices near the identity: far from singular ones, near which Φ is not continuous."""
        super().init_from_graph(graph, seed)
        with torch.no_grad():
            self._matrices(self.parts("relation", self.relation)).add_(
                torch.eye(group_size(self.dim)).to(self.relation)
            )

    def rows_needed(self, side: Side, ids: IdsByTable) -> tuple[IdsByTable, Callable[[RowsByTable], RowsByTable]]:  # noqa: ARG002
        """Gather all relations: there are fewer than positives, and Φ is costly."""
        every = torch.arange(self.stored["relation"].num_rows, device=ids["relation"].device)

        def build(rows: RowsByTable) -> RowsByTable:
            relation = F.embedding(ids["relation"], self.prepare_relations(rows["relation"]))
            return {**rows, "relation": relation}

        return {**ids, "relation": every}, build

    def encoded_relations(self, stored: RowSource) -> RowSource:
        """Return rows of relations with Φ(M) in the place of M."""
        return OrthogonalRows(self, stored)

    def prepare_relations(self, rows: Tensor) -> Tensor:
        """Return rows with Φ(M) in the place of M: Gram–Schmidt on rows of M is L⁻¹ M with M Mᵀ = L Lᵀ, in float64."""
        r = self.parts("relation", rows)
        matrix = self._matrices(r).double()
        nothing = 1e-12 * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        lower, _ = torch.linalg.cholesky_ex(matrix @ matrix.mT + nothing)  # so that no matrix is singular
        turn = torch.linalg.solve_triangular(lower, matrix, upper=False).to(rows.dtype)
        return torch.cat([turn.flatten(-3), r.scale], -1)

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q = e^{s} ∘ Φ(M) h."""
        turned = torch.einsum("...gij,...gj->...gi", self._matrices(r), self._groups(h))
        return turned.flatten(-2) * r.scale.exp(), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q = e^{−s} ∘ Φ(M)ᵀ t."""
        turned = torch.einsum("...gij,...gi->...gj", self._matrices(r), self._groups(t))
        return turned.flatten(-2) * (-r.scale).exp(), None

    @has_kernel(lambda model: Formula("groups", group_size(model.dim)))
    def pair_score(self, q: Tensor, w: Tensor | None, c: Tensor) -> Tensor:  # noqa: ARG002
        """Return minus the sum of the Euclidean distances of all groups."""
        x = self._groups(q - c)
        return -stable_sum(safe_sqrt(stable_sum(x * x)))

    def score_rows(self, q: Tensor, w: Tensor | None, rows: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return what any model returns; in training on shared rows by products, |q − c|² = |q|² + |c|² − 2 q·c."""
        if ids is not None or not self.training:
            return super().score_rows(q, w, rows, ids)
        queries, others = (self._groups(x).transpose(0, 1) for x in (q, rows))  # [groups, B or N, size]
        squares = stable_sum(queries * queries)[:, :, None] + stable_sum(others * others)[:, None]
        return -torch.baddbmm(squares, queries, others.mT, alpha=-2).clamp(min=1e-12).sqrt().sum(0)

    def _groups(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], -1, group_size(self.dim))

    def _matrices(self, r: Any) -> Tensor:
        size = group_size(self.dim)
        matrices: Tensor = r.matrix.reshape(*r.matrix.shape[:-1], -1, size, size)
        return matrices


def group_size(dim: int) -> int:
    """Return how many features a group has."""
    return largest_divisor(dim, 20)


def largest_divisor(dim: int, most: int) -> int:
    """Return the largest divisor of a number that is at most `most`."""
    return next(size for size in range(min(most, dim), 0, -1) if dim % size == 0)
