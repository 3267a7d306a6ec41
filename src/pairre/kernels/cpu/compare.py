"""Queries against candidates on the CPU: loops under numba that never hold queries × candidates × features.

B queries, K candidates of each query, N candidate rows, D features.

A kernel computes rows start to stop of its result, each element summed in one order, so that results do not depend on
the number of threads. The derivative of |x| at exactly 0 is taken as −1 here and as 0 in the reference: both are
subgradients, and this one spares the inner loop a comparison. NaN and infinity pass through (no `nnan`, no `ninf`
among the flags).

"l1" without weights has kernels of its own, tuned. All else comes from kernels made for a kind: it is a constant of a
closure, so that the compiler sees one branch. numba's cache tells closures apart by their constants.
"""

# Kernels carry no types: numba finds them out.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pairre.kernels.reference.compare import Kind, check, wide
from pairre.kernels.reference.compare import pairs as plain_pairs
from pairre.support.threads import over_rows

_FAST = {"reassoc", "contract", "nsz", "arcp"}
_kernel = numba.njit(nogil=True, error_model="numpy", fastmath=_FAST, cache=True)
_piece = numba.njit(nogil=True, error_model="numpy", fastmath=_FAST)  # of a kernel, with which it is cached
_L1, _L2, _MODULUS, _DOT = range(4)
_CODES: dict[Kind, int] = {"l1": _L1, "l2": _L2, "modulus": _MODULUS, "dot": _DOT}
_Side = tuple[Tensor, Tensor]  # the two tables of queries, or of candidates


@_kernel
def _l1_forward_shared(q, w, c, out, start, stop):
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
def _l1_backward_query(q, w, c, ids, g, dq, dw, start, stop):
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
def _l1_backward_shared(q, w, c, g, dc, start, stop):
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
def _l1_forward_own(q, w, c, ids, out, start, stop):
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
def _l1_backward_own(q, w, c, order, starts, g, dc, start, stop):
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


@_piece
def _gap(a, e, m, b, f, i, k, has_a, has_b):
    """x = a[m] ∘ b[i] − e[m] ∘ f[i] at feature k; a table that is absent is all ones."""
    right = e[m, k] * f[i, k]
    if not has_a:
        return b[i, k] - right
    if not has_b:
        return a[m, k] - right
    return a[m, k] * b[i, k] - right


@_piece
def _complex_gap(a, e, m, b, f, i, k, h, has_a, has_b):
    """The same of complex features: real parts at k, imaginary parts at h."""
    real, imaginary = e[m, k] * f[i, k] - e[m, h] * f[i, h], e[m, k] * f[i, h] + e[m, h] * f[i, k]
    if not has_a:
        return b[i, k] - real, b[i, h] - imaginary
    if not has_b:
        return a[m, k] - real, a[m, h] - imaginary
    return a[m, k] * b[i, k] - a[m, h] * b[i, h] - real, a[m, k] * b[i, h] + a[m, h] * b[i, k] - imaginary


@_piece
def _term(code, q, w, m, r, c, i, k, weighted):
    if code == _DOT:
        return q[m, k] * c[i, k]
    if code == _MODULUS:
        x, y = _complex_gap(q, w, m, r, c, i, k, k + q.shape[1] // 2, True, weighted)
        return np.sqrt(x * x + y * y)
    x = _gap(q, w, m, r, c, i, k, True, weighted)
    return abs(x) if code == _L1 else x * x


@_piece
def _finish(code, total):
    if code == _DOT:
        return total
    return -np.sqrt(total) if code == _L2 else -total


@cache
def _forward(code: int, weighted: bool) -> Any:
    @_kernel
    def forward(q, w, r, c, ids, block, out, start, stop):
        """`block` queries share a pass over candidates; `ids` [B, K], or [1, N] where all queries share them."""
        num_terms = q.shape[1] // 2 if code == _MODULUS else q.shape[1]
        last = ids.shape[1] - 1
        for first in range(start, stop, block):
            for j in range(0, last + 1, 4):
                j1, j2, j3 = min(j + 1, last), min(j + 2, last), min(j + 3, last)
                for b in range(first, min(stop, first + block)):
                    row = ids[min(b, ids.shape[0] - 1)]
                    i0, i1, i2, i3 = row[j], row[j1], row[j2], row[j3]
                    s0 = q.dtype.type(0)
                    s1, s2, s3 = s0, s0, s0
                    for k in range(num_terms):
                        s0 += _term(code, q, w, b, r, c, i0, k, weighted)
                        s1 += _term(code, q, w, b, r, c, i1, k, weighted)
                        s2 += _term(code, q, w, b, r, c, i2, k, weighted)
                        s3 += _term(code, q, w, b, r, c, i3, k, weighted)
                    out[b, j], out[b, j1] = _finish(code, s0), _finish(code, s1)
                    out[b, j2], out[b, j3] = _finish(code, s2), _finish(code, s3)

    return forward


@_piece
def _slope(code, a, e, m, b, f, i, k, g, has_a, has_b):
    """g times the derivative of a term by x; −g for the dot product, a ∘ b alone."""
    if code == _DOT:
        return -g
    x = _gap(a, e, m, b, f, i, k, has_a, has_b)
    return _signed(x, g) if code == _L1 else x * g


@cache
def _backward(code: int, has_a: bool, has_b: bool) -> Any:
    @_kernel
    def backward(a, e, b, f, rows, firsts, starts, g, da, de, start, stop):
        """Gradients of rows a[m], e[m] that met rows b[i], f[i], for i in rows[firsts[m]:]; x = a ∘ b − e ∘ f.

        Row m has the upstream gradients g[starts[m]:starts[m + 1]]; past their end they are 0. m is of either side.
        """
        num_features, half, zero = f.shape[1], f.shape[1] // 2, g.dtype.type(0)
        for m in range(start, stop):
            da[m] = 0
            de[m] = 0
            shift, last = firsts[m] - starts[m], starts[m + 1] - 1
            for p in range(starts[m], last + 1, 1 if code == _MODULUS else 4):
                p1, p2, p3 = min(p + 1, last), min(p + 2, last), min(p + 3, last)
                i, i1, i2, i3 = rows[p + shift], rows[p1 + shift], rows[p2 + shift], rows[p3 + shift]
                g1, g2, g3 = g[p1] if p1 > p else zero, g[p2] if p2 > p1 else zero, g[p3] if p3 > p2 else zero
                for k in range(half if code == _MODULUS else 0):
                    h = k + half
                    x, y = _complex_gap(a, e, m, b, f, i, k, h, has_a, has_b)
                    square = x * x + y * y
                    slope = zero if square == 0 else g[p] / np.sqrt(square)
                    s, t = x * slope, y * slope
                    if has_a:
                        da[m, k] -= s * b[i, k] + t * b[i, h] if has_b else s
                        da[m, h] -= t * b[i, k] - s * b[i, h] if has_b else t
                    de[m, k] += s * f[i, k] + t * f[i, h]
                    de[m, h] += t * f[i, k] - s * f[i, h]
                for k in range(0 if code == _MODULUS else num_features):
                    s = _slope(code, a, e, m, b, f, i, k, g[p], has_a, has_b)
                    s1 = _slope(code, a, e, m, b, f, i1, k, g1, has_a, has_b)
                    s2 = _slope(code, a, e, m, b, f, i2, k, g2, has_a, has_b)
                    s3 = _slope(code, a, e, m, b, f, i3, k, g3, has_a, has_b)
                    if has_a and has_b:
                        da[m, k] -= (s * b[i, k] + s1 * b[i1, k]) + (s2 * b[i2, k] + s3 * b[i3, k])
                    elif has_a:
                        da[m, k] -= (s + s1) + (s2 + s3)
                    if code != _DOT:
                        de[m, k] += (s * f[i, k] + s1 * f[i1, k]) + (s2 * f[i2, k] + s3 * f[i3, k])

    return backward


class _Compare(torch.autograd.Function):
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
            if code != _L1 or weighted:
                block = 8 if ids is None else 1
                arrays = (*(t.numpy() for t in (q, w, r, c)), chosen, block, out.numpy())
                over_rows(_forward(code, weighted), len(q), *arrays, multiple=block)
            elif ids is None:
                over_rows(_l1_forward_shared, len(q), q.numpy(), w.numpy(), c.numpy(), out.numpy(), multiple=8)
            else:
                over_rows(_l1_forward_own, len(q), q.numpy(), w.numpy(), c.numpy(), chosen, out.numpy())
        ctx.save_for_backward(q, w, c, r, ids, out if code == _L2 else None)
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
        if ctx.code == _L1 and not ctx.weighted:
            dq, dw, dc = _l1_gradients(q, w, c, ids, g, of_query, of_candidates)
        elif ctx.code == _DOT and ids is None:
            dq, dc = g @ c if of_query else None, g.t() @ q if of_candidates else None
        else:
            dot = ctx.code == _DOT
            first, mine, theirs = dot or ctx.weighted, (q, w), (c, c) if dot else (r, c)
            if of_query:
                dq, dw = _gradients(_backward(ctx.code, True, first), mine, theirs, *_met(ids, g))
            if of_candidates:
                met = _met(None, g.t().contiguous()) if ids is None else _met_by(ids, g, len(c))
                dr, dc = _gradients(_backward(ctx.code, first, True), theirs, mine, *met)
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
        over_rows(_l1_backward_query, len(q), *arrays, rows, g.numpy(), dq.numpy(), dw.numpy())
    if of_candidates:
        dc = torch.empty_like(c)
        if ids is None:
            over_rows(_l1_backward_shared, len(c), *arrays, g.numpy(), dc.numpy(), multiple=8)
        else:
            order, starts = _grouped(ids.numpy(), len(c))
            over_rows(_l1_backward_own, len(c), *arrays, order, starts, g.numpy(), dc.numpy())
    return dq, dw, dc


def _gradients(kernel: Any, mine: _Side, theirs: _Side, *met: np.ndarray) -> _Side:
    """Gradients of the two tables of one side; see `_backward`."""
    da, de = torch.empty_like(mine[0]), torch.empty_like(mine[1])
    tables = (t.numpy() for t in (*mine, *theirs))
    over_rows(kernel, len(da), *tables, *met, da.numpy(), de.numpy())
    return da, de


def _met(ids: Tensor | None, g: Tensor) -> tuple[np.ndarray, ...]:
    """Whom the rows of g [M, K] met: rows `ids` [M, K], or all K."""
    starts = np.arange(len(g) + 1) * g.shape[1]
    if ids is None:
        return np.arange(g.shape[1]), np.zeros_like(starts), starts, g.numpy().ravel()
    return ids.contiguous().numpy().ravel(), starts, starts, g.numpy().ravel()


def _met_by(ids: Tensor, g: Tensor, num_rows: int) -> tuple[np.ndarray, ...]:
    """Which queries the rows met that were chosen by `ids` [B, K]."""
    order, starts = _grouped(ids.numpy(), num_rows)
    return order // g.shape[1], starts, starts, g.numpy().ravel()[order]


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


def compare(
    kind: Kind,
    query: Tensor,
    scale: Tensor | None,
    candidates: Tensor,
    ids: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """As `reference.compare`."""
    check(kind, query, scale, ids, weights)
    if scale is None:
        scale = torch.ones_like(query, requires_grad=False)
        if kind == "modulus":
            scale[:, query.shape[1] // 2 :] = 0
    tables = (wide(query), wide(scale), wide(candidates), ids, None if weights is None else wide(weights))
    result: Tensor = _Compare.apply(_CODES[kind], *tables)  # type: ignore[no-untyped-call]
    return result


def pairs(kind: Kind, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """As `reference.pairs`, and by it: B × D numbers are few beside what `compare` goes through."""
    return plain_pairs(kind, query, scale, candidates)
