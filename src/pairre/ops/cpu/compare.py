"""Kernels for the CPU: loops under numba that never hold queries × candidates × features.

B queries, K candidates of each query, N candidate rows, D features, U touched rows.

A kernel computes rows start to stop of its result, each element summed in one order, so that results do not depend on
the number of threads. The derivative of |x| at exactly 0 is taken as −1 here and as 0 in the reference: both are
subgradients, and this one spares the inner loop a comparison. NaN and infinity pass through (no `nnan`, no `ninf`
among the flags).
"""

# Kernels carry no types: numba and Triton find them out.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pairre.threads import over_rows

_FAST = {"reassoc", "contract", "nsz", "arcp"}
_kernel = numba.njit(nogil=True, error_model="numpy", fastmath=_FAST, cache=True)


@_kernel
def _forward_shared(q, w, c, out, start, stop):
    """Two queries × four candidates in registers; eight queries share a pass over the candidates.

    Indices past the end are clamped, so that every element runs through the same instructions: equal rows tie exactly.
    """
    num_queries, num_features = q.shape
    last = c.shape[0] - 1
    for first in range(start, stop, 8):
        for j in range(0, last + 1, 4):
            j1, j2, j3 = min(j + 1, last), min(j + 2, last), min(j + 3, last)
            for b in range(first, min(stop, first + 8), 2):
                b1 = min(b + 1, num_queries - 1)
                s0 = q.dtype.type(0)
                s1, s2, s3, t0, t1, t2, t3 = s0, s0, s0, s0, s0, s0, s0
                for k in range(num_features):
                    x, y, u, v = q[b, k], w[b, k], q[b1, k], w[b1, k]
                    c0, c1, c2, c3 = c[j, k], c[j1, k], c[j2, k], c[j3, k]
                    s0 += abs(x - y * c0)
                    s1 += abs(x - y * c1)
                    s2 += abs(x - y * c2)
                    s3 += abs(x - y * c3)
                    t0 += abs(u - v * c0)
                    t1 += abs(u - v * c1)
                    t2 += abs(u - v * c2)
                    t3 += abs(u - v * c3)
                out[b, j], out[b, j1], out[b, j2], out[b, j3] = -s0, -s1, -s2, -s3
                out[b1, j], out[b1, j1], out[b1, j2], out[b1, j3] = -t0, -t1, -t2, -t3


@numba.njit(inline="always")
def _signed(x, g):
    return g if x > 0 else -g


@_kernel
def _backward_query(q, w, c, ids, g, dq, dw, start, stop):
    """Gradients of query and scale; `ids` [B, K], or [1, N] where all queries share the candidates."""
    num_queries, num_features = q.shape
    shared = ids.shape[0] == 1 and num_queries > 1
    num_candidates = ids.shape[1]
    whole = num_candidates // 4 * 4
    for b in range(start, stop):
        row = ids[0] if shared else ids[b]
        dq[b] = 0
        dw[b] = 0
        for j in range(0, whole, 4):
            i0, i1, i2, i3 = row[j], row[j + 1], row[j + 2], row[j + 3]
            g0, g1, g2, g3 = g[b, j], g[b, j + 1], g[b, j + 2], g[b, j + 3]
            for k in range(num_features):
                x, y = q[b, k], w[b, k]
                c0, c1, c2, c3 = c[i0, k], c[i1, k], c[i2, k], c[i3, k]
                a0, a1, a2, a3 = (
                    _signed(x - y * c0, g0),
                    _signed(x - y * c1, g1),
                    _signed(x - y * c2, g2),
                    _signed(x - y * c3, g3),
                )
                dq[b, k] -= (a0 + a1) + (a2 + a3)
                dw[b, k] += (a0 * c0 + a1 * c1) + (a2 * c2 + a3 * c3)
        for j in range(whole, num_candidates):
            i0, g0 = row[j], g[b, j]
            for k in range(num_features):
                a0 = _signed(q[b, k] - w[b, k] * c[i0, k], g0)
                dq[b, k] -= a0
                dw[b, k] += a0 * c[i0, k]


@_kernel
def _backward_shared(q, w, c, g, dc, start, stop):
    """Gradient of candidates that every query meets: eight candidates share a pass over the queries."""
    num_queries, num_features = q.shape
    whole = num_queries // 4 * 4
    for first in range(start, stop, 8):
        end = min(stop, first + 8)
        dc[first:end] = 0
        for b in range(0, whole, 4):
            for j in range(first, end):
                g0, g1, g2, g3 = g[b, j], g[b + 1, j], g[b + 2, j], g[b + 3, j]
                for k in range(num_features):
                    e = c[j, k]
                    w0, w1, w2, w3 = w[b, k], w[b + 1, k], w[b + 2, k], w[b + 3, k]
                    a0, a1 = _signed(q[b, k] - w0 * e, g0) * w0, _signed(q[b + 1, k] - w1 * e, g1) * w1
                    a2, a3 = _signed(q[b + 2, k] - w2 * e, g2) * w2, _signed(q[b + 3, k] - w3 * e, g3) * w3
                    dc[j, k] += (a0 + a1) + (a2 + a3)
        for b in range(whole, num_queries):
            for j in range(first, end):
                for k in range(num_features):
                    dc[j, k] += _signed(q[b, k] - w[b, k] * c[j, k], g[b, j]) * w[b, k]


@_kernel
def _forward_own(q, w, c, ids, out, start, stop):
    """Each query against rows of its own choice, four at a time."""
    num_features = q.shape[1]
    last = ids.shape[1] - 1
    for b in range(start, stop):
        for j in range(0, last + 1, 4):
            j1, j2, j3 = min(j + 1, last), min(j + 2, last), min(j + 3, last)
            i0, i1, i2, i3 = ids[b, j], ids[b, j1], ids[b, j2], ids[b, j3]
            s0 = q.dtype.type(0)
            s1, s2, s3 = s0, s0, s0
            for k in range(num_features):
                x, y = q[b, k], w[b, k]
                s0 += abs(x - y * c[i0, k])
                s1 += abs(x - y * c[i1, k])
                s2 += abs(x - y * c[i2, k])
                s3 += abs(x - y * c[i3, k])
            out[b, j], out[b, j1], out[b, j2], out[b, j3] = -s0, -s1, -s2, -s3


@_kernel
def _backward_own(q, w, c, order, starts, g, dc, start, stop):
    """Gradient of chosen rows: row i gathers from the (query, place) pairs order[starts[i]:starts[i + 1]]."""
    num_features = q.shape[1]
    num_places = g.shape[1]
    for i in range(start, stop):
        dc[i] = 0
        for position in range(starts[i], starts[i + 1]):
            b = order[position] // num_places
            gradient = g[b, order[position] % num_places]
            for k in range(num_features):
                dc[i, k] += _signed(q[b, k] - w[b, k] * c[i, k], gradient) * w[b, k]


class _WeightedL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, scale: Tensor, candidates: Tensor, ids: Tensor | None) -> Tensor:
        q, w, c = (t.detach().contiguous() for t in (query, scale, candidates))
        num_places = len(c) if ids is None else ids.shape[1]
        arrays = (q.numpy(), w.numpy(), c.numpy())
        out = torch.empty(len(q), num_places, dtype=q.dtype)
        if out.numel():
            if ids is None:
                over_rows(_forward_shared, len(q), *arrays, out.numpy(), multiple=8)
            else:
                over_rows(_forward_own, len(q), *arrays, ids.contiguous().numpy(), out.numpy())
        ctx.save_for_backward(q, w, c)
        ctx.ids = ids
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, w, c = ctx.saved_tensors
        ids: Tensor | None = ctx.ids
        g = gradient.contiguous().numpy()
        arrays = (q.numpy(), w.numpy(), c.numpy())
        dq = dw = dc = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            dq, dw = torch.empty_like(q), torch.empty_like(w)
            rows = (torch.arange(len(c))[None] if ids is None else ids.contiguous()).numpy()
            over_rows(_backward_query, len(q), *arrays, rows, g, dq.numpy(), dw.numpy())
        if ctx.needs_input_grad[2]:
            dc = torch.empty_like(c)
            if ids is None:
                over_rows(_backward_shared, len(c), *arrays, g, dc.numpy(), multiple=8)
            else:
                order, starts = _grouped(ids.numpy(), len(c))
                over_rows(_backward_own, len(c), *arrays, order, starts, g, dc.numpy())
        return dq, dw, dc, None


@numba.njit(cache=True)
def _count_sort(flat, counts, order):
    for position in range(flat.shape[0]):
        order[counts[flat[position]]] = position
        counts[flat[position]] += 1


def _grouped(ids: np.ndarray, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions in `ids` sorted by row, and where each row's begin: a counting sort, so linear and always the same."""
    flat = ids.ravel()
    starts = np.zeros(num_rows + 1, np.int64)
    np.cumsum(np.bincount(flat, minlength=num_rows), out=starts[1:])
    order = np.empty(len(flat), np.int64)
    _count_sort(flat, starts[:-1].copy(), order)
    return order, starts


def weighted_l1(query: Tensor, scale: Tensor, candidates: Tensor, ids: Tensor | None = None) -> Tensor:
    """As `reference.weighted_l1`."""
    result: Tensor = _WeightedL1.apply(query, scale, candidates, ids)  # type: ignore[no-untyped-call]
    return result
