"""Models' own formulas of all pairs of a block, in Triton: scores, and for those of normal distributions gradients.

B queries, N candidates, D features. A row of a query or candidate has D means, then D variances; the scale of a query
has D variances. As for the metrics, what a gradient needs of a pair is computed again, and nothing of
queries × candidates × features is stored.
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

from pairre.kernels.cuda.terms import still
from pairre.kernels.cuda.tiles import LAUNCH, power
from pairre.kernels.cuda.triton_scores import shared_scores, split_sum
from pairre.kernels.reference.scores import Formula


@triton.jit
def _distribution(T, W, row, rd, here, D, HAS_SCALE: tl.constexpr):
    """Return means and variances of rows, and of queries the scales, at features rd; 0 and 1 where there are none."""
    mean = tl.load(T + row * 2 * D + rd, mask=here, other=0.0)
    variance = tl.load(T + row * 2 * D + D + rd, mask=here, other=1.0)
    scale = variance
    if HAS_SCALE:
        scale = tl.load(W + row * D + rd, mask=here, other=1.0)
    return mean, variance, scale


@triton.jit
def _slopes(m, variance, scale, g, METRIC: tl.constexpr):
    """Return g times the derivatives of the score by m, by both variances, and by the scale."""
    unit = 1.0 / scale
    by_variance = 0.5 * g * (1.0 / variance - unit)
    by_scale = 0.5 * g * unit * (tl.fma(m, m, variance) * unit - 1.0)
    if METRIC == "likelihood":
        unit = 1.0 / (variance + scale)
        by_variance = 0.5 * g * unit * (m * m * unit - 1.0)
        by_scale = by_variance
    return -g * m * unit, by_variance, by_scale


@triton.jit
def _gradients(
    MINE, SCALE, OTHERS, OTHERS_SCALE, G, D_MINE, D_SCALE, num_rows, num_others, D, CHUNK,
    METRIC: tl.constexpr, OF_QUERIES: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Store part `program 2` of the gradients of rows, of queries or of candidates; G is [others, rows]."""
    rm = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    rd = tl.program_id(1) * BD + tl.arange(0, BD)
    in_m, in_d = rm < num_rows, rd < D
    inside = in_m[:, None] & in_d[None, :]
    mean, variance, scale = _distribution(MINE, SCALE, rm[:, None], rd[None, :], inside, D, OF_QUERIES)
    by_mean, by_variance = tl.zeros([BM, BD], tl.float32), tl.zeros([BM, BD], tl.float32)
    by_scale = tl.zeros([BM, BD], tl.float32)
    first = tl.program_id(2) * CHUNK
    last = tl.minimum(first + CHUNK, num_others)
    for j0 in range(first, last, UNROLL):
        for u in tl.static_range(UNROLL):
            j = tl.cast(j0 + u, tl.int64)
            g = tl.load(G + j * num_rows + rm, mask=still(in_m, j, last), other=0.0)[:, None]
            here = still(in_d, j, last)
            other, spread, others_scale = _distribution(OTHERS, OTHERS_SCALE, j, rd, here, D, not OF_QUERIES)
            m, total, of_query = mean - other[None, :], variance + spread[None, :], scale
            if not OF_QUERIES:
                m, of_query = -m, others_scale[None, :]
            dm, dv, dw = _slopes(m, total, of_query, g, METRIC)
            by_mean += dm
            by_variance += dv
            by_scale += dw
    if not OF_QUERIES:
        by_mean = -by_mean
    part = tl.program_id(2).to(tl.int64) * num_rows
    place = (part + rm[:, None]) * 2 * D + rd[None, :]
    tl.store(D_MINE + place, by_mean, mask=inside)
    tl.store(D_MINE + place + D, by_variance, mask=inside)
    if OF_QUERIES:
        tl.store(D_SCALE + (part + rm[:, None]) * D + rd[None, :], by_scale, mask=inside)


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, formula: Formula, query: Tensor, scale: Tensor, candidates: Tensor) -> Tensor:
        tables = query.contiguous(), scale.contiguous(), candidates.contiguous()
        ctx.save_for_backward(*tables)
        ctx.formula = formula
        return shared_scores(formula.kernel, *tables, None, True, formula.unroll)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, w, c = ctx.saved_tensors
        dq, dw = _gradients_of(ctx.formula, q, w, c, gradient.t().contiguous(), of_queries=True)
        dc, _ = _gradients_of(ctx.formula, c, w, q, gradient.contiguous(), of_queries=False)
        return None, dq, dw, dc


def _gradients_of(
    formula: Formula, mine: Tensor, scale: Tensor, others: Tensor, g: Tensor, *, of_queries: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients of rows and, of queries, of their scales; g is [others, rows]."""
    (num_rows, _), num_others, dim = mine.shape, len(others), scale.shape[1]
    tile_m, tile_d = power(num_rows, 16), power(dim, 128)
    grid = (triton.cdiv(num_rows, tile_m), triton.cdiv(dim, tile_d))
    parts = split_sum(grid[0] * grid[1], num_others, 32, True)
    of_rows = torch.zeros(parts, *mine.shape, device=mine.device)
    of_scale = torch.zeros(parts, num_rows if of_queries else 0, dim, device=mine.device)
    if mine.numel() and num_others:
        _gradients[(*grid, parts)](
            *(mine, scale, others, scale, g, of_rows, of_scale, num_rows, num_others, dim),
            triton.cdiv(num_others, parts),
            METRIC=formula.kernel,
            OF_QUERIES=of_queries,
            BM=tile_m,
            BD=tile_d,
            UNROLL=2,
            **LAUNCH,
        )
    return of_rows.sum(0), of_scale.sum(0)


def has_gradient(formula: Formula) -> bool:
    """Return whether there are kernels for the gradient of a formula."""
    return formula.kernel != "groups"


def formula_scores(formula: Formula, query: Tensor, scale: Tensor | None, candidates: Tensor, learns: bool) -> Tensor:
    """Return scores of all pairs by a model's own formula; if it `learns`, with a gradient where it has one."""
    if learns:
        scores: Tensor = _Scores.apply(formula, query, scale, candidates)  # type: ignore[no-untyped-call]
        return scores
    q, w, c = query.contiguous(), None if scale is None else scale.contiguous(), candidates.contiguous()
    return shared_scores(formula.kernel, q, w, c, None, False, formula.unroll)
