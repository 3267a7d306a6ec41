"""Which kernels score on a CUDA device: CUDA C++ for the weighted L1 of shared candidates, Triton for all else.

The L1 of shared candidates is bound by arithmetic, and Triton gives no say in how a tile lies in registers. Both ways
have the signatures of `reference/compare.py`, and true scores always come from the way that counts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pairre.kernels.cuda import native
from pairre.kernels.cuda.compare import compare as triton_compare
from pairre.kernels.cuda.count import count_above as triton_count_above
from pairre.kernels.cuda.count import true_scores as triton_true_scores
from pairre.kernels.reference.compare import Kind


class _WeightedL1(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, scale: Tensor, candidates: Tensor, weights: Tensor | None, may_split: bool
    ) -> Tensor:
        tables = query.contiguous(), scale.contiguous(), candidates.contiguous()
        weights = None if weights is None else weights.contiguous()
        ctx.save_for_backward(*tables, weights)
        return native.shared_scores(*tables, None if may_split else 1, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, w, c, r = ctx.saved_tensors
        gradients = native.shared_gradients(q, w, c, gradient.contiguous(), r)
        return *gradients, *[None] * (5 - len(gradients))


def _native(kind: Kind, *tables: Tensor | None) -> bool:
    """Whether the kernels in CUDA C++ fit these tables."""
    fit = kind == "l1" and all(t is not None and t.dtype == torch.float32 and t.numel() > 0 for t in tables)
    return fit and native.available()


def compare(
    kind: Kind,
    query: Tensor,
    scale: Tensor | None,
    candidates: Tensor,
    ids: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """As `reference.compare`, in float32."""
    if ids is not None or not _native(kind, query, scale, candidates, *([] if weights is None else [weights])):
        return triton_compare(kind, query, scale, candidates, ids, weights)
    tables = (query, scale, candidates, weights)
    needed = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tables)
    scores: Tensor = _WeightedL1.apply(*tables, needed)  # type: ignore[no-untyped-call]
    return scores


def true_scores(kind: Kind, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """As `reference.true_scores`, in float32."""
    if scale is not None and _native(kind, query, scale, candidates):
        return native.true_scores(query.contiguous(), scale.contiguous(), candidates.contiguous())
    return triton_true_scores(kind, query, scale, candidates)


def count_above(
    kind: Kind,
    query: Tensor,
    scale: Tensor | None,
    candidates: Tensor,
    true: Tensor,
    begin: Tensor,
    end: Tensor,
    members: Tensor,
    own: Tensor,
    first: int,
) -> tuple[Tensor, Tensor]:
    """As `reference.count_above`."""
    left_out = (begin, end, members, own)
    if scale is None or not _native(kind, query, scale, candidates):
        return triton_count_above(kind, query, scale, candidates, true, *left_out, first)
    higher, equal = (torch.zeros(len(query), dtype=torch.int64, device=query.device) for _ in range(2))
    q, w, c = query.contiguous(), scale.contiguous(), candidates.contiguous()
    begin, end, members, own = (t.contiguous() for t in left_out)
    native.count_above(q, w, c, true.contiguous(), begin, end, members, own, first, higher, equal)
    return higher, equal
