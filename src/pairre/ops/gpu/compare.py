"""Kernels for the GPU in Triton, with the signatures of `reference.py`; nothing of queries × candidates × features.

B queries, K candidates of each query, N candidate rows, D features, U touched rows.

Accumulation is in float32 and in a fixed order: where a sum is split over programs, each writes its part and the parts
are added afterwards, so results are the same bit for bit from run to run. Scores without a gradient are never split, so
that equal rows tie exactly whatever the shapes. As on the CPU, the derivative of |x| at 0 is ±1, as its sign bit says.

A thread's share of a [BM, BN] tile is (BM / warps) × (BN / 32); the tiles below make it 4 × 8 or 4 × 4, so that loads
stay behind arithmetic. They are the best of a search on an H200.
"""

# Kernels carry no types: numba and Triton find them out.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

_PROGRAMS = 1024  # about eight a multiprocessor on the largest GPUs: below that, a sum is split
_WARPS = 4


@triton.jit
def _signed(x, g):
    """g with its sign flipped where x is negative, by bits: one instruction."""
    sign = x.to(tl.int32, bitcast=True) & -2147483648
    return (g.to(tl.int32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)


@triton.jit
def _while(mask, index, end):
    """A mask that is empty once a loop that was unrolled has passed its end."""
    return mask & (index + tl.zeros_like(mask.to(tl.int32)) < end)


@triton.jit
def _forward_shared(Q, W, C, OUT, num_q, num_c, D, CHUNK, BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr):
    """Part `program 2` of −Σ |q − w c|, from tables stored feature by feature: Q, W [D, B], C [D, N]."""
    rm = tl.program_id(1) * BM + tl.arange(0, BM)
    rn = tl.program_id(0) * BN + tl.arange(0, BN)
    in_m, in_n = rm < num_q, rn < num_c
    first = tl.program_id(2) * CHUNK
    last = tl.minimum(first + CHUNK, D)
    acc = tl.zeros([BM, BN], tl.float32)
    for k0 in range(first, last, UNROLL):
        for u in tl.static_range(UNROLL):
            k = k0 + u
            q = tl.load(Q + k * num_q + rm, mask=_while(in_m, k, last), other=0.0)
            w = tl.load(W + k * num_q + rm, mask=_while(in_m, k, last), other=0.0)
            c = tl.load(C + k * num_c + rn, mask=_while(in_n, k, last), other=0.0)
            acc += tl.abs(q[:, None] - w[:, None] * c[None, :])
    place = tl.program_id(2).to(tl.int64) * num_q * num_c + rm[:, None].to(tl.int64) * num_c + rn[None, :]
    tl.store(OUT + place, -acc, mask=in_m[:, None] & in_n[None, :])


@triton.jit
def _backward_query(
    Q,
    W,
    C,
    IDS,
    G,
    DQ,
    DW,
    num_q,
    num_places,
    D,
    OWN: tl.constexpr,
    BM: tl.constexpr,
    BD: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Gradients of queries and scales. G is [places, B] for shared candidates and [B, places] for own ones (BM = 1)."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rd = tl.program_id(1) * BD + tl.arange(0, BD)
    in_m, in_d = rm < num_q, rd < D
    inside = in_m[:, None] & in_d[None, :]
    place = rm[:, None] * D + rd[None, :]
    q = tl.load(Q + place, mask=inside, other=0.0)
    w = tl.load(W + place, mask=inside, other=0.0)
    dq = tl.zeros([BM, BD], tl.float32)
    dw = tl.zeros([BM, BD], tl.float32)
    for j0 in range(0, num_places, UNROLL):
        for u in tl.static_range(UNROLL):
            j = j0 + u
            if OWN:
                row = tl.load(IDS + tl.program_id(0).to(tl.int64) * num_places + tl.minimum(j, num_places - 1))
                g = tl.load(G + rm.to(tl.int64) * num_places + j, mask=_while(in_m, j, num_places), other=0.0)
            else:
                row = j
                g = tl.load(G + j * num_q + rm, mask=_while(in_m, j, num_places), other=0.0)
            c = tl.load(C + row * D + rd, mask=_while(in_d, j, num_places), other=0.0)[None, :]
            s = _signed(q - w * c, tl.broadcast_to(g[:, None], [BM, BD]))
            dq -= s
            dw += s * c
    tl.store(DQ + place, dq, mask=inside)
    tl.store(DW + place, dw, mask=inside)


@triton.jit
def _backward_shared(Q, W, C, G, DC, num_q, num_c, D, CHUNK, BN: tl.constexpr, BD: tl.constexpr, UNROLL: tl.constexpr):
    """Part `program 2` (over the queries) of the gradient of candidates; G is [B, N]."""
    rn = tl.program_id(0) * BN + tl.arange(0, BN)
    rd = tl.program_id(1) * BD + tl.arange(0, BD)
    in_n, in_d = rn < num_c, rd < D
    inside = in_n[:, None] & in_d[None, :]
    c = tl.load(C + rn[:, None] * D + rd[None, :], mask=inside, other=0.0)
    dc = tl.zeros([BN, BD], tl.float32)
    first = tl.program_id(2) * CHUNK
    last = tl.minimum(first + CHUNK, num_q)
    for b0 in range(first, last, UNROLL):
        for u in tl.static_range(UNROLL):
            b = b0 + u
            q = tl.load(Q + b * D + rd, mask=_while(in_d, b, last), other=0.0)[None, :]
            w = tl.load(W + b * D + rd, mask=_while(in_d, b, last), other=0.0)[None, :]
            g = tl.load(G + b * num_c + rn, mask=_while(in_n, b, last), other=0.0)
            dc += _signed(q - w * c, tl.broadcast_to(g[:, None], [BN, BD])) * w
    place = tl.program_id(2).to(tl.int64) * num_c * D + rn[:, None] * D + rd[None, :]
    tl.store(DC + place, dc, mask=inside)


@triton.jit
def _forward_own(Q, W, C, IDS, OUT, num_places, D, BK: tl.constexpr, BD: tl.constexpr):
    """One query against BK rows of its own choice."""
    b = tl.program_id(0).to(tl.int64)
    rk = tl.program_id(1) * BK + tl.arange(0, BK)
    in_k = rk < num_places
    rows = tl.load(IDS + b * num_places + rk, mask=in_k, other=0)
    acc = tl.zeros([BK, BD], tl.float32)
    for d0 in range(0, D, BD):
        rd = d0 + tl.arange(0, BD)
        in_d = rd < D
        q = tl.load(Q + b * D + rd, mask=in_d, other=0.0)
        w = tl.load(W + b * D + rd, mask=in_d, other=0.0)
        c = tl.load(C + rows[:, None] * D + rd[None, :], mask=in_k[:, None] & in_d[None, :], other=0.0)
        acc += tl.abs(q[None, :] - w[None, :] * c)
    tl.store(OUT + b * num_places + rk, -tl.sum(acc, axis=1), mask=in_k)


@triton.jit
def _backward_own(Q, W, C, ORDER, STARTS, G, DC, num_places, D, BD: tl.constexpr):
    """Gradient of one chosen row, gathered from the (query, place) pairs that met it."""
    i = tl.program_id(0).to(tl.int64)
    rd = tl.program_id(1) * BD + tl.arange(0, BD)
    in_d = rd < D
    c = tl.load(C + i * D + rd, mask=in_d, other=0.0)
    dc = tl.zeros([BD], tl.float32)
    for position in range(tl.load(STARTS + i), tl.load(STARTS + i + 1)):
        pair = tl.load(ORDER + position)
        b = pair // num_places
        g = tl.load(G + pair)
        q = tl.load(Q + b * D + rd, mask=in_d, other=0.0)
        w = tl.load(W + b * D + rd, mask=in_d, other=0.0)
        dc += _signed(q - w * c, tl.broadcast_to(g, [BD])) * w
    tl.store(DC + i * D + rd, dc, mask=in_d)


def _power(number: int, most: int) -> int:
    """The least power of two that holds a number, at most `most`."""
    return min(most, 1 << max(number - 1, 0).bit_length())


def _split(programs: int, length: int, least: int, allowed: bool) -> int:
    """Into how many parts a sum of `length` terms goes, so that the grid fills the GPU."""
    return max(1, min(-(-_PROGRAMS // programs), length // least)) if allowed else 1


class _WeightedL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, scale: Tensor, candidates: Tensor, ids: Tensor | None) -> Tensor:
        q, w, c = (t.detach().contiguous() for t in (query, scale, candidates))
        ids = None if ids is None else ids.contiguous()
        scores = _shared_scores(q, w, c, any(ctx.needs_input_grad)) if ids is None else _own_scores(q, w, c, ids)
        ctx.save_for_backward(q, w, c, ids)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, w, c, ids = ctx.saved_tensors
        g = gradient.contiguous()
        dq, dw = _query_gradients(q, w, c, ids, g) if any(ctx.needs_input_grad[:2]) else (None, None)
        dc = None
        if ctx.needs_input_grad[2]:
            dc = _shared_gradient(q, w, c, g) if ids is None else _own_gradient(q, w, c, ids, g)
        return dq, dw, dc, None


def _shared_scores(q: Tensor, w: Tensor, c: Tensor, may_split: bool) -> Tensor:
    (num_q, dim), num_c = q.shape, len(c)
    tile_m, tile_n = _power(num_q, 16), max(32, _power(num_c, 256))
    grid = (triton.cdiv(num_c, tile_n), triton.cdiv(num_q, tile_m))
    parts = _split(grid[0] * grid[1], dim, 64, may_split)
    chunk = triton.cdiv(dim, parts)
    out = torch.empty(parts, num_q, num_c, device=q.device)
    if out.numel():
        by_feature = (t.t().contiguous() for t in (q, w, c))
        _forward_shared[(*grid, parts)](
            *by_feature, out, num_q, num_c, dim, chunk, BM=tile_m, BN=tile_n, UNROLL=2, num_warps=_WARPS
        )
    return out[0] if parts == 1 else out.sum(0)


def _own_scores(q: Tensor, w: Tensor, c: Tensor, ids: Tensor) -> Tensor:
    (num_q, num_places), dim = ids.shape, q.shape[1]
    out = torch.empty(num_q, num_places, device=q.device)
    if out.numel():
        tile = _power(num_places, 16)
        grid = (num_q, triton.cdiv(num_places, tile))
        _forward_own[grid](q, w, c, ids, out, num_places, dim, BK=tile, BD=_power(dim, 256), num_warps=_WARPS)
    return out


def _query_gradients(q: Tensor, w: Tensor, c: Tensor, ids: Tensor | None, g: Tensor) -> tuple[Tensor, Tensor]:
    (num_q, dim), num_places = q.shape, g.shape[1]
    dq, dw = torch.empty_like(q), torch.empty_like(w)
    own = ids is not None
    tile_m, tile_d = (1, _power(dim, 512)) if own else (_power(num_q, 16), _power(dim, 128))
    grid = (triton.cdiv(num_q, tile_m), triton.cdiv(dim, tile_d))
    if q.numel():
        rows, upstream = (ids, g) if own else (q, g.t().contiguous())
        _backward_query[grid](
            *(q, w, c, rows, upstream, dq, dw, num_q, num_places, dim),
            OWN=own,
            BM=tile_m,
            BD=tile_d,
            UNROLL=8,
            num_warps=_WARPS,
        )
    return dq, dw


def _shared_gradient(q: Tensor, w: Tensor, c: Tensor, g: Tensor) -> Tensor:
    (num_q, dim), num_c = q.shape, len(c)
    tile_n, tile_d = _power(num_c, 16), _power(dim, 128)
    grid = (triton.cdiv(num_c, tile_n), triton.cdiv(dim, tile_d))
    parts = _split(grid[0] * grid[1], num_q, 32, allowed=True)
    out = torch.empty(parts, num_c, dim, device=q.device)
    if out.numel():
        chunk = triton.cdiv(num_q, parts)
        _backward_shared[(*grid, parts)](
            q, w, c, g, out, num_q, num_c, dim, chunk, BN=tile_n, BD=tile_d, UNROLL=4, num_warps=_WARPS
        )
    return out[0] if parts == 1 else out.sum(0)


def _own_gradient(q: Tensor, w: Tensor, c: Tensor, ids: Tensor, g: Tensor) -> Tensor:
    num_c, dim = c.shape
    flat, order = ids.flatten().sort(stable=True)
    starts = torch.searchsorted(flat, torch.arange(num_c + 1, device=ids.device))
    dc = torch.empty_like(c)
    if dc.numel():
        tile = _power(dim, 512)
        grid = (num_c, triton.cdiv(dim, tile))
        _backward_own[grid](q, w, c, order, starts, g, dc, ids.shape[1], dim, BD=tile, num_warps=_WARPS)
    return dc


def weighted_l1(query: Tensor, scale: Tensor, candidates: Tensor, ids: Tensor | None = None) -> Tensor:
    """As `reference.weighted_l1`, in float32."""
    result: Tensor = _WeightedL1.apply(query, scale, candidates, ids)  # type: ignore[no-untyped-call]
    return result
