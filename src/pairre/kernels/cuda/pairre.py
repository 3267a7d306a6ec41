"""Score a whole PairRE batch on a CUDA device: one launch between rows and score kernels, each way.

B positives, M negatives that all of them share, D features.
"""

# Kernels carry no types: Triton infers them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from pairre.kernels.cuda.scores import score_candidates


@triton.jit
def _length(x):
    """1 / |x|, as `unit_rows` has it."""
    return 1 / tl.maximum(tl.sqrt(tl.sum(x * x, axis=0)), 1e-12)


@triton.jit
def _signed(x, g):
    """Return g with its sign flipped where x is negative."""
    return tl.where(x < 0, -g, g)


@triton.jit
def _forward(ENTITY, RELATION, Q, W, C, POSITIVE, batch, D, TAIL: tl.constexpr, BD: tl.constexpr):
    """Store query, scale and score of a positive, or from program B on one negative as a unit vector."""
    b = tl.program_id(0).to(tl.int64)
    rd = tl.arange(0, BD)
    inside = rd < D
    if b < batch:
        anchor = tl.load(ENTITY + b * D + rd, mask=inside, other=0.0)
        true = tl.load(ENTITY + (batch + b) * D + rd, mask=inside, other=0.0)
        r_head = tl.load(RELATION + 2 * b * D + rd, mask=inside, other=0.0)
        r_tail = tl.load(RELATION + (2 * b + 1) * D + rd, mask=inside, other=0.0)
        w = r_tail if TAIL else r_head
        q = anchor * _length(anchor) * (r_head if TAIL else r_tail)
        tl.store(Q + b * D + rd, q, mask=inside)
        tl.store(W + b * D + rd, w, mask=inside)
        tl.store(POSITIVE + b, -tl.sum(tl.abs(q - w * (true * _length(true))), axis=0))
    else:
        row = tl.load(ENTITY + (batch + b) * D + rd, mask=inside, other=0.0)
        tl.store(C + (b - batch) * D + rd, row * _length(row), mask=inside)


@triton.jit
def _along(unit, gradient):
    """Return what is left of a gradient on the unit sphere."""
    return gradient - unit * tl.sum(unit * gradient, axis=0)


@triton.jit
def _backward(ENTITY, RELATION, C, DP, DQ, DW, DC, DENTITY, DRELATION, batch, D, TAIL: tl.constexpr, BD: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    rd = tl.arange(0, BD)
    inside = rd < D
    if b < batch:
        anchor = tl.load(ENTITY + b * D + rd, mask=inside, other=0.0)
        true = tl.load(ENTITY + (batch + b) * D + rd, mask=inside, other=0.0)
        anchor_length, true_length = _length(anchor), _length(true)
        anchor, true = anchor * anchor_length, true * true_length
        place = 2 * b * D + rd + (0 if TAIL else D)  # of the part of the relation that made the query
        scale_place = 2 * b * D + rd + (D if TAIL else 0)
        r = tl.load(RELATION + place, mask=inside, other=0.0)
        w = tl.load(RELATION + scale_place, mask=inside, other=0.0)
        q = anchor * r
        s = _signed(q - w * true, tl.load(DP + b) + tl.zeros_like(q))
        dq = tl.load(DQ + b * D + rd, mask=inside, other=0.0) - s
        dw = tl.load(DW + b * D + rd, mask=inside, other=0.0) + s * true
        tl.store(DRELATION + place, dq * anchor, mask=inside)
        tl.store(DRELATION + scale_place, dw, mask=inside)
        tl.store(DENTITY + b * D + rd, _along(anchor, dq * r) * anchor_length, mask=inside)
        tl.store(DENTITY + (batch + b) * D + rd, _along(true, s * w) * true_length, mask=inside)
    else:
        row = tl.load(ENTITY + (batch + b) * D + rd, mask=inside, other=0.0)
        c = tl.load(C + (b - batch) * D + rd, mask=inside, other=0.0)
        dc = tl.load(DC + (b - batch) * D + rd, mask=inside, other=0.0)
        tl.store(DENTITY + (batch + b) * D + rd, _along(c, dc) * _length(row), mask=inside)


def _options(dim: int) -> dict[str, int]:
    width = triton.next_power_of_2(dim)
    return {"BD": width, "num_warps": max(1, min(16, width // 128))}


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, entity: Tensor, relation: Tensor, tail: bool) -> tuple[Tensor, Tensor]:
        batch, dim = len(relation), entity.shape[1]
        q, w = (torch.empty(batch, dim, device=entity.device) for _ in range(2))
        c = torch.empty(len(entity) - 2 * batch, dim, device=entity.device)
        positive = torch.empty(batch, device=entity.device)
        _forward[(len(entity) - batch,)](entity, relation, q, w, c, positive, batch, dim, TAIL=tail, **_options(dim))
        with torch.enable_grad():
            ctx.inputs = tuple(t.requires_grad_() for t in (q, w, c))
            ctx.scores = score_candidates("l1", *ctx.inputs)
        ctx.save_for_backward(entity, relation)
        ctx.tail = tail
        return positive, ctx.scores.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_positive: Tensor, d_negative: Tensor) -> tuple[Tensor, Tensor, None]:
        entity, relation = ctx.saved_tensors
        batch, dim = len(relation), entity.shape[1]
        gradients = torch.autograd.grad(ctx.scores, ctx.inputs, d_negative)
        d_entity, d_relation = torch.empty_like(entity), torch.empty_like(relation)
        _backward[(len(entity) - batch,)](
            *(entity, relation, ctx.inputs[2].detach(), d_positive.contiguous(), *gradients),
            *(d_entity, d_relation, batch, dim),
            TAIL=ctx.tail,
            **_options(dim),
        )
        return d_entity, d_relation, None


def pairre_batch_scores(entity: Tensor, relation: Tensor, tail: bool) -> tuple[Tensor, Tensor]:
    """Return scores of B positives and of M negatives for each, from rows [2 B + M, D].

    The rows are those of anchors, true entities and shared negatives. `relation` is [B, 2 D]; `tail` says whether the
    negatives replace tails.
    """
    scores: tuple[Tensor, Tensor] = _Scores.apply(entity.contiguous(), relation.contiguous(), tail)  # type: ignore[no-untyped-call]
    return scores
