"""Models whose relations have matrices that project entities: a step has one row for each relation of its batch.

B positives, G relations of a batch, K negatives, D features. Rows of d² numbers are most of what such a step moves, so
that none is copied for every positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.graph import Side
from pairre.kernels import backend
from pairre.models.negative_layouts import EntityRows, NegativeLayout, Shared
from pairre.models.scoring import Model


@dataclass(frozen=True)
class SharedMatrices:
    """Matrices [G, d·d], stored by row, of which vector b has number[b]."""

    rows: Tensor
    number: Tensor  # [B]


class MatrixProjection(Model):
    """A model that takes parts of a relation's row, its `matrix_parts`, as matrices of entities, by `product` alone."""

    projects_entities = True

    def score_batch(
        self, side: Side, entity: EntityRows, relation: Tensor, layout: NegativeLayout
    ) -> tuple[Tensor, Tensor]:
        """Return scores as `Model` does; `relation` may hold one row for each group of positives."""
        groups = layout.relation_groups if isinstance(layout, Shared) else None
        if groups is None or groups.first is not None:
            return super().score_batch(side, entity, relation, layout)
        number, others, own_side = groups.number, entity.negatives, self.candidate_side[side]
        anchor, true = entity.anchor_and_true.chunk(2)
        if not self._fits(len(relation), others, others.shape[1]):
            return super().score_batch(side, entity, F.embedding(number, relation), Shared())
        of_groups = vars(self.parts("relation", relation))
        each = SimpleNamespace(
            **{
                name: SharedMatrices(part, number) if name in self.matrix_parts else F.embedding(number, part)
                for name, part in of_groups.items()
            }
        )
        if side == "tail" or self.reciprocal:
            query = self.tail_query(self._prepared(anchor, "head", each), each)
        else:
            query = self.head_query(each, self._prepared(anchor, "tail", each))
        candidates = self._prepared(true, own_side, each)
        positive = backend(number.device.type).score_pairs(self.metric or self.pair_score, *query, candidates)
        every = SimpleNamespace(**{name: part[:, None] for name, part in of_groups.items()})
        return positive, self._score_by_group(query, self._prepared(others[None], own_side, every), number)

    def _prepared(self, rows: Tensor, side: Side, r: Any) -> Tensor:
        """Return entity rows as the score uses them on a side, with the parts of their relations."""
        e = self.parts("entity", rows)
        e.side = side
        return self.prepare(e, r)


def product(matrix: Tensor | SharedMatrices, vector: Tensor) -> Tensor:
    """Return matrices [..., d·d], stored by row, times vectors [..., d]; leading dimensions broadcast."""
    dim, kernels = vector.shape[-1], backend(vector.device.type)
    if isinstance(matrix, SharedMatrices):
        matrices = matrix.rows.view(-1, dim, dim)
        return kernels.grouped_product(matrices, matrix.number, vector)
    if matrix.dim() == 2 and matrix.stride(0) == 0 and len(matrix) == len(vector):  # one row that was expanded
        matrix = matrix[0]
    matrices = matrix.reshape(*matrix.shape[:-1], dim, dim)
    if matrices.dim() == 2:  # one matrix for all
        return kernels.stable_product(vector, matrices.mT)
    if matrices.shape[-3] == 1:  # one matrix for each row of vectors
        matrices = matrices.squeeze(-3)
        if torch.is_grad_enabled() and matrices.requires_grad:
            products: Tensor = _Product.apply(matrices, vector)  # type: ignore[no-untyped-call]
            return products
        return kernels.stable_product(vector, matrices.mT)
    return kernels.stable_product(vector.unsqueeze(-2), matrices.mT).squeeze(-2)


class _Product(torch.autograd.Function):
    """Vectors [..., n, d] times matrices [..., d, d], whose gradient lies in memory as they do, and is not turned."""

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, vectors: Tensor) -> Tensor:
        ctx.save_for_backward(matrices, vectors)
        return vectors @ matrices.mT

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        matrices, vectors = ctx.saved_tensors
        of_matrices, of_vectors = gradient.mT @ vectors, gradient @ matrices
        return of_matrices.sum_to_size(matrices.shape), of_vectors.sum_to_size(vectors.shape)
