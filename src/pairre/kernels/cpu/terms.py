"""Score kernels on the CPU for each metric (l1, l2, modulus, dot), compiled by numba for one metric each.

The metric is a constant of a closure, so that the compiler sees one branch; numba's cache tells closures apart by their
constants. "l1" without weights, which PairRE uses, has tuned kernels of its own in `scores.py`.

x = a ∘ b − e ∘ f: query, weights, scale, candidate; or the other way round where rows of candidates are computed. Row
numbers: m of the rows that a kernel computes, i of the rows that they are scored against; k is a feature.
"""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

from pairre.support.compiled import compiled

FAST = {"reassoc", "contract", "nsz", "arcp"}  # neither nnan nor ninf: NaN and infinity pass through
kernel = compiled(nogil=True, error_model="numpy", fastmath=FAST)
_piece = numba.njit(nogil=True, error_model="numpy", fastmath=FAST)  # part of a kernel, with which it is cached
L1, L2, MODULUS, DOT = range(4)


@numba.njit(inline="always")
def signed(x, g):
    """Return g with the sign of x; the derivative of |x| at 0 counts as −1."""
    return g if x > 0 else -g


@_piece
def _gap(a, e, m, b, f, i, k, has_a, has_b):
    """Return a[m] ∘ b[i] − e[m] ∘ f[i] at feature k; a table that is absent is all ones."""
    right = e[m, k] * f[i, k]
    if not has_a:
        return b[i, k] - right
    if not has_b:
        return a[m, k] - right
    return a[m, k] * b[i, k] - right


@_piece
def _complex_gap(a, e, m, b, f, i, k, h, has_a, has_b):
    """Return the same for complex features: real parts at k, imaginary parts at h."""
    real, imaginary = e[m, k] * f[i, k] - e[m, h] * f[i, h], e[m, k] * f[i, h] + e[m, h] * f[i, k]
    if not has_a:
        return b[i, k] - real, b[i, h] - imaginary
    if not has_b:
        return a[m, k] - real, a[m, h] - imaginary
    return a[m, k] * b[i, k] - a[m, h] * b[i, h] - real, a[m, k] * b[i, h] + a[m, h] * b[i, k] - imaginary


@_piece
def _term(code, q, w, m, r, c, i, k, weighted):
    if code == DOT:
        return q[m, k] * c[i, k]
    if code == MODULUS:
        x, y = _complex_gap(q, w, m, r, c, i, k, k + q.shape[1] // 2, True, weighted)
        return np.sqrt(x * x + y * y)
    x = _gap(q, w, m, r, c, i, k, True, weighted)
    return abs(x) if code == L1 else x * x


@_piece
def _finish(code, total):
    if code == DOT:
        return total
    return -np.sqrt(total) if code == L2 else -total


@cache
def forward_kernel(code: int, weighted: bool) -> Any:
    """Return the kernel that scores queries by a metric."""

    @kernel
    def forward(q, w, r, c, ids, block, out, start, stop):
        """Score queries start to stop; `block` queries share a pass over candidates `ids` [B, K] or [1, N]."""
        num_terms = q.shape[1] // 2 if code == MODULUS else q.shape[1]
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
    """Return g times the derivative of a term by x; −g for the dot product, which is a ∘ b alone."""
    if code == DOT:
        return -g
    x = _gap(a, e, m, b, f, i, k, has_a, has_b)
    return signed(x, g) if code == L1 else x * g


@cache
def backward_kernel(code: int, has_a: bool, has_b: bool) -> Any:
    """Return the kernel that computes gradients of one side of the pairs."""

    @kernel
    def backward(a, e, b, f, rows, firsts, starts, g, da, de, start, stop):
        """Compute gradients of rows a[m], e[m], scored against rows b[i], f[i] for i in rows[firsts[m]:].

        Row m has the upstream gradients g[starts[m]:starts[m + 1]]; past their end they are 0. m is of either side.
        """
        num_features, half, zero = f.shape[1], f.shape[1] // 2, g.dtype.type(0)
        for m in range(start, stop):
            da[m] = 0
            de[m] = 0
            shift, last = firsts[m] - starts[m], starts[m + 1] - 1
            for p in range(starts[m], last + 1, 1 if code == MODULUS else 4):
                p1, p2, p3 = min(p + 1, last), min(p + 2, last), min(p + 3, last)
                i, i1, i2, i3 = rows[p + shift], rows[p1 + shift], rows[p2 + shift], rows[p3 + shift]
                g1, g2, g3 = g[p1] if p1 > p else zero, g[p2] if p2 > p1 else zero, g[p3] if p3 > p2 else zero
                for k in range(half if code == MODULUS else 0):
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
                for k in range(0 if code == MODULUS else num_features):
                    s = _slope(code, a, e, m, b, f, i, k, g[p], has_a, has_b)
                    s1 = _slope(code, a, e, m, b, f, i1, k, g1, has_a, has_b)
                    s2 = _slope(code, a, e, m, b, f, i2, k, g2, has_a, has_b)
                    s3 = _slope(code, a, e, m, b, f, i3, k, g3, has_a, has_b)
                    if has_a and has_b:
                        da[m, k] -= (s * b[i, k] + s1 * b[i1, k]) + (s2 * b[i2, k] + s3 * b[i3, k])
                    elif has_a:
                        da[m, k] -= (s + s1) + (s2 + s3)
                    if code != DOT:
                        de[m, k] += (s * f[i, k] + s1 * f[i1, k]) + (s2 * f[i2, k] + s3 * f[i3, k])

    return backward
