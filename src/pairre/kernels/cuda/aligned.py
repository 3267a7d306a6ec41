"""Products of matrices whose rows are aligned, which cuBLAS has faster kernels for."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

_ALIGNED = 8  # numbers at whose multiples the rows of a matrix begin


class _AlignedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, candidates: Tensor) -> Tensor:
        ctx.missing = -len(candidates) % _ALIGNED
        rows = F.pad(candidates, (0, 0, 0, ctx.missing)) if ctx.missing else candidates
        ctx.save_for_backward(query, rows)
        return (query @ rows.t())[:, : len(candidates)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        query, rows = ctx.saved_tensors
        if ctx.missing:
            gradient = F.pad(gradient, (0, ctx.missing))
        of_query = gradient @ rows if ctx.needs_input_grad[0] else None
        num = len(rows) - ctx.missing
        return of_query, (gradient.t() @ query)[:num] if ctx.needs_input_grad[1] else None


def aligned_product(query: Tensor, candidates: Tensor) -> Tensor:
    """Return query @ candidatesᵀ [B, N]; the rows of the result may lie further apart than N numbers."""
    scores: Tensor = _AlignedProduct.apply(query, candidates)  # type: ignore[no-untyped-call]
    return scores
