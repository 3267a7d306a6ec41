"""Score queries against candidates on the CPU, without ever holding queries × candidates × features.

B queries q with scales w, K candidates of each query, N candidate rows c, D features; g is the gradient of scores.

A kernel computes rows start to stop of its result and sums each element in one order, so that results do not depend on
the number of threads. The derivative of |x| at exactly 0 is taken as −1 here and as 0 in the reference: both are
subgradients, and this one spares the inner loop a comparison.
"""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pairre.kernels.cpu.terms import DOT, L1, L2, MODULUS, backward_kernel, forward_kernel, kernel, signed
from pairre.kernels.reference import scores as reference
from pairre.kernels.reference.scores import HALF, Metric, PairScore, check_arguments
from pairre.support.compiled import compiled
from pairre.support.threads import parallel_for

CODES: dict[str, int] = {"l1": L1, "l2": L2, "modulus": MODULUS, "dot": DOT}
_Side = tuple[Tensor, Tensor]  # the two tables of queries, or of candidates


@kernel
def l1_forward_shared(q, w, c, out, start, stop):
    """Score all pairs: two queries × four candidates in registers, eight queries share a pass over the candidates.

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


@kernel
def _l1_backward_query(q, w, c, ids, g, dq, dw, start, stop):
    """Compute gradients of query and scale; `ids` is [B, K], or [1, N] where all queries share the candidates."""
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
                    signed(x - y * c0, g0),
                    signed(x - y * c1, g1),
                    signed(x - y * c2, g2),
                    signed(x - y * c3, g3),
                )
                dq[b, k] -= (a0 + a1) + (a2 + a3)
                dw[b, k] += (a0 * c0 + a1 * c1) + (a2 * c2 + a3 * c3)
        for j in range(whole, num_candidates):
            i0, g0 = row[j], g[b, j]
            for k in range(num_features):
                a0 = signed(q[b, k] - w[b, k] * c[i0, k], g0)
                dq[b, k] -= a0
                dw[b, k] += a0 * c[i0, k]


@kernel
def _l1_backward_shared(q, w, c, g, dc, start, stop):
    """Compute the gradient of candidates that all queries share; eight candidates share a pass over the queries."""
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
                    a0, a1 = signed(q[b, k] - w0 * e, g0) * w0, signed(q[b + 1, k] - w1 * e, g1) * w1
                    a2, a3 = signed(q[b + 2, k] - w2 * e, g2) * w2, signed(q[b + 3, k] - w3 * e, g3) * w3
                    dc[j, k] += (a0 + a1) + (a2 + a3)
        for b in range(whole, num_queries):
            for j in range(first, end):
                for k in range(num_features):
                    dc[j, k] += signed(q[b, k] - w[b, k] * c[j, k], g[b, j]) * w[b, k]


@kernel
def _l1_forward_own(q, w, c, ids, out, start, stop):
    """Score each query against candidates of its own, four at a time."""
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


@kernel
def _l1_backward_own(q, w, c, order, starts, g, dc, start, stop):
    """Compute the gradient of row i from the (query, position) pairs order[starts[i]:starts[i + 1]]."""
    num_features = q.shape[1]
    num_places = g.shape[1]
    for i in range(start, stop):
        dc[i] = 0
        for position in range(starts[i], starts[i + 1]):
            b = order[position] // num_places
            gradient = g[b, order[position] % num_places]
            for k in range(num_features):
                dc[i, k] += signed(q[b, k] - w[b, k] * c[i, k], gradient) * w[b, k]


class _ScoreCandidates(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, code: int, query: Tensor, scale: Tensor, candidates: Tensor, ids: Any, weights: Any
    ) -> Tensor:
        weighted = weights is not None
        q, w, c, r = (t.detach().contiguous() for t in (query, scale, candidates, weights if weighted else candidates))
        num_places = len(c) if ids is None else ids.shape[1]
        out = torch.empty(len(q), num_places, dtype=q.dtype)
        if out.numel():
            chosen = (torch.arange(num_places)[None] if ids is None else ids.contiguous()).numpy()
            if code != L1 or weighted:
                block = 8 if ids is None else 1
                arrays = (*(t.numpy() for t in (q, w, r, c)), chosen, block, out.numpy())
                parallel_for(forward_kernel(code, weighted), len(q), *arrays, multiple=block)
            elif ids is None:
                parallel_for(l1_forward_shared, len(q), q.numpy(), w.numpy(), c.numpy(), out.numpy(), multiple=8)
            else:
                parallel_for(_l1_forward_own, len(q), q.numpy(), w.numpy(), c.numpy(), chosen, out.numpy())
        ctx.save_for_backward(q, w, c, r, ids, out if code == L2 else None)
        ctx.code, ctx.weighted = code, weighted
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, w, c, r, ids, scores = ctx.saved_tensors
        g = gradient if scores is None else (gradient / -scores).masked_fill_(scores == 0, 0)
        g = g.contiguous()
        of_query, of_candidates = any(ctx.needs_input_grad[1:3]), any(ctx.needs_input_grad[3:])
        dq = dw = dc = dr = None
        if ctx.code == L1 and not ctx.weighted:
            dq, dw, dc = _l1_gradients(q, w, c, ids, g, of_query, of_candidates)
        elif ctx.code == DOT and ids is None:
            dq, dc = g @ c if of_query else None, g.t() @ q if of_candidates else None
        else:
            dot = ctx.code == DOT
            first, mine, theirs = dot or ctx.weighted, (q, w), (c, c) if dot else (r, c)
            if of_query:
                dq, dw = _gradients(backward_kernel(ctx.code, True, first), mine, theirs, *_scored_against(ids, g))
            if of_candidates:
                pairs = _scored_against(None, g.t().contiguous()) if ids is None else _scored_by(ids, g, len(c))
                dr, dc = _gradients(backward_kernel(ctx.code, first, True), theirs, mine, *pairs)
                dc = dr if dot else dc
        return None, dq, dw, dc, None, dr if ctx.weighted else None


def _l1_gradients(
    q: Tensor, w: Tensor, c: Tensor, ids: Tensor | None, g: Tensor, of_query: bool, of_candidates: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    arrays = (q.numpy(), w.numpy(), c.numpy())
    dq = dw = dc = None
    if of_query:
        dq, dw = torch.empty_like(q), torch.empty_like(w)
        rows = (torch.arange(len(c))[None] if ids is None else ids.contiguous()).numpy()
        parallel_for(_l1_backward_query, len(q), *arrays, rows, g.numpy(), dq.numpy(), dw.numpy())
    if of_candidates:
        dc = torch.empty_like(c)
        if ids is None:
            parallel_for(_l1_backward_shared, len(c), *arrays, g.numpy(), dc.numpy(), multiple=8)
        else:
            order, starts = _grouped(ids.numpy(), len(c))
            parallel_for(_l1_backward_own, len(c), *arrays, order, starts, g.numpy(), dc.numpy())
    return dq, dw, dc


def _gradients(kernel: Any, mine: _Side, theirs: _Side, *pairs: np.ndarray) -> _Side:
    """Return the gradients of the two tables of one side; see `backward_kernel`."""
    da, de = torch.empty_like(mine[0]), torch.empty_like(mine[1])
    tables = (t.numpy() for t in (*mine, *theirs))
    parallel_for(kernel, len(da), *tables, *pairs, da.numpy(), de.numpy())
    return da, de


def _scored_against(ids: Tensor | None, g: Tensor) -> tuple[np.ndarray, ...]:
    """Return the rows that each row of g [M, K] was scored against: `ids` [M, K], or all K."""
    starts = np.arange(len(g) + 1) * g.shape[1]
    if ids is None:
        return np.arange(g.shape[1]), np.zeros_like(starts), starts, g.numpy().ravel()
    return ids.contiguous().numpy().ravel(), starts, starts, g.numpy().ravel()


def _scored_by(ids: Tensor, g: Tensor, num_rows: int) -> tuple[np.ndarray, ...]:
    """Return the queries that each candidate row was scored against by `ids` [B, K]."""
    order, starts = _grouped(ids.numpy(), num_rows)
    return order // g.shape[1], starts, starts, g.numpy().ravel()[order]


@compiled()
def _count_sort(flat, counts, order):
    for position in range(flat.shape[0]):
        order[counts[flat[position]]] = position
        counts[flat[position]] += 1


def _grouped(ids: np.ndarray, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions in `ids` sorted by row, and where those of each row begin, by a counting sort."""
    flat = ids.ravel()
    starts = np.zeros(num_rows + 1, np.int64)
    np.cumsum(np.bincount(flat, minlength=num_rows), out=starts[1:])
    order = np.empty(len(flat), np.int64)
    _count_sort(flat, starts[:-1].copy(), order)
    return order, starts


def score_candidates(
    metric: Metric | PairScore,
    query: Tensor,
    scale: Tensor | None,
    candidates: Tensor,
    ids: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return what `reference.score_candidates` returns."""
    if callable(metric):
        return reference.score_candidates(metric, query, scale, candidates, ids)
    check_arguments(metric, query.shape[1], scale is not None, ids is not None, weights is not None)
    if scale is None:
        scale = torch.ones_like(query, requires_grad=False)
        if metric == "modulus":
            scale[:, query.shape[1] // 2 :] = 0
    tables = (t if t is None or t.dtype not in HALF else t.float() for t in (query, scale, candidates, ids, weights))
    result: Tensor = _ScoreCandidates.apply(CODES[metric], *tables)  # type: ignore[no-untyped-call]
    return result
