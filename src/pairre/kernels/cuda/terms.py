"""What a metric of comparison is, as pieces of Triton kernels: a term of its sum, the slope of a term, a tile of sums.

x = a ∘ b − e ∘ f: query, weights, scale, candidates; or the other way round where a program holds candidates. Values
come in twos, the real and the imaginary part (…i); where features are real, the second is never used, and the compiler
drops it.

Beside the metrics there are formulas of models, for ranking only: "groups" adds up the lengths of groups of UNROLL
features; in "likelihood" and "divergence" the second of two values is a variance, and the scale has variances alone.
These have UNROLL 1, as a masked feature would count.
"""

# Kernels carry no types: Triton infers them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _signed(x, g):
    """Return g with its sign flipped where x is negative, by bits: one instruction."""
    sign = x.to(tl.int32, bitcast=True) & -2147483648
    return (g.to(tl.int32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)


@triton.jit
def still(mask, index, end):
    """Return a mask that is empty once a loop that was unrolled has passed its end."""
    return mask & (index + tl.zeros_like(mask.to(tl.int32)) < end)


@triton.jit
def width(D, METRIC: tl.constexpr):
    """Return how many terms D features make: a complex one takes two."""
    if (METRIC == "modulus" or METRIC == "likelihood") or METRIC == "divergence":
        D = D // 2
    return D


@triton.jit
def load(T, place, mask, half, METRIC: tl.constexpr, HAS: tl.constexpr):
    """Return values of a table, if there is one (else T is any), and their imaginary parts, `half` elements on."""
    real = mask.to(tl.float32)
    if HAS:
        real = tl.load(T + place, mask=mask, other=0.0).to(tl.float32)
    imaginary = real
    if HAS and ((METRIC == "modulus" or METRIC == "likelihood") or METRIC == "divergence"):
        imaginary = tl.load(T + half + place, mask=mask, other=0.0).to(tl.float32)
    return real, imaginary


@triton.jit
def load_scale(W, place, mask, half, METRIC: tl.constexpr, HAS: tl.constexpr):
    """Return values of the scales, and their imaginary parts where features are complex."""
    if METRIC == "modulus":
        w, wi = load(W, place, mask, half, METRIC, HAS)
    else:
        w, wi = load(W, place, mask, half, "l1", HAS)
    return w, wi


@triton.jit
def store(T, place, real, imaginary, mask, half, METRIC: tl.constexpr):
    """Store values and their imaginary parts where `load` reads them."""
    tl.store(T + place, real, mask=mask)
    if METRIC == "modulus":
        tl.store(T + half + place, imaginary, mask=mask)


@triton.jit
def _divisor(variance):
    """Return variances with 1 for a 0, which only masked ones are."""
    return tl.where(variance == 0, 1.0, variance)


@triton.jit
def gap(
    a, ai, b, bi, e, ei, f, fi, METRIC: tl.constexpr, A: tl.constexpr, B: tl.constexpr, E: tl.constexpr, F: tl.constexpr
):
    """Return x = a ∘ b − e ∘ f, where A, B, E, F say which there are; for "dot", a ∘ f; for variances, two terms."""
    x, xi = a, ai
    if not A:
        x, xi = b, bi
    elif B:
        x = a * b
        if METRIC == "modulus":
            x, xi = a * b - ai * bi, a * bi + ai * b
    if METRIC == "dot":
        x = a * f
    elif METRIC == "likelihood":
        variance = _divisor(ai + fi + e)
        x, xi = (a - f) * (a - f) / variance, tl.log(variance) + 1.8378770664093453  # log 2π
    elif METRIC == "divergence":
        e = _divisor(e)
        ratio = _divisor((ai + fi) / e)
        x, xi = (a - f) * (a - f) / e + ratio, -tl.log(ratio) - 1
    elif E and F:
        x = x - e * f
        if METRIC == "modulus":
            x, xi = x + ei * fi, xi - e * fi - ei * f
    elif E:
        x, xi = x - e, xi - ei
    else:
        x, xi = x - f, xi - fi
    return x, xi


@triton.jit
def term(x, xi, METRIC: tl.constexpr):
    """Return what x adds to the sum."""
    if METRIC == "l1":
        x = tl.abs(x)
    elif METRIC == "l2" or METRIC == "groups":
        x = x * x
    elif METRIC == "modulus":
        x = tl.sqrt(tl.fma(x, x, xi * xi))
    elif METRIC == "likelihood" or METRIC == "divergence":
        x = x + xi
    return x


@triton.jit
def finish(total, METRIC: tl.constexpr, WHOLE: tl.constexpr):
    """Return a score from its sum; from a part of the sum, what can be added up."""
    if METRIC == "l2" and WHOLE:
        total = tl.sqrt(total)
    if METRIC == "likelihood" or METRIC == "divergence":
        total = total / 2
    if METRIC != "dot":
        total = -total
    return total


@triton.jit
def slope(x, xi, g, METRIC: tl.constexpr):
    """Return g times the derivative of the score by −x (by x for "dot"); g of "l2" comes divided by the norm."""
    s, si = g, g
    if METRIC == "l1":
        s = _signed(x, g)
    elif METRIC == "l2":
        s = x * g
    elif METRIC == "modulus":
        square = tl.fma(x, x, xi * xi)
        nothing = square < 1.18e-38  # below the normal numbers, which a fast root may take for 0
        g = tl.where(nothing, 0.0, g * tl.rsqrt(tl.where(nothing, 1.0, square)))
        s, si = x * g, xi * g
    return s, si


@triton.jit
def times(s, si, b, bi, METRIC: tl.constexpr, HAS: tl.constexpr):
    """Return the slope times the conjugate of a factor: the gradient of the other factor."""
    if HAS:
        if METRIC == "modulus":
            s, si = s * b + si * bi, si * b - s * bi
        else:
            s = s * b
    return s, si


@triton.jit
def sums(
    Q, W, C, R, rm, rn, num_q, num_c, first, last, D,
    METRIC: tl.constexpr, HAS_SCALE: tl.constexpr, HAS_WEIGHTS: tl.constexpr, LONG: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr, PAIRS: tl.constexpr = False,
):  # fmt: skip
    """Σ of terms first to last for all pairs of a tile, from tables stored by feature: Q, W [D, B]; C, R [D, N].

    With `PAIRS`, query and candidate m are one pair: the sums are [BM], in the same order.
    """
    in_m, in_n = rm < num_q, rn < num_c
    step_m, step_n = num_q, num_c
    if LONG:
        step_m, step_n = tl.cast(num_q, tl.int64), tl.cast(num_c, tl.int64)
    half_m, half_n = D // 2 * step_m, D // 2 * step_n
    acc = tl.zeros([BM] if PAIRS else [BM, BN], tl.float32)
    for k0 in range(first, last, UNROLL):
        part = tl.zeros_like(acc)
        for u in tl.static_range(UNROLL):
            k = k0 + u
            here_m, here_n = still(in_m, k, last), still(in_n, k, last)
            q, qi = load(Q + k * step_m, rm, here_m, half_m, METRIC, True)
            w, wi = load_scale(W + k * step_m, rm, here_m, half_m, METRIC, HAS_SCALE)
            c, ci = load(C + k * step_n, rn, here_n, half_n, METRIC, True)
            r, ri = load(R + k * step_n, rn, here_n, half_n, METRIC, HAS_WEIGHTS)
            if not PAIRS:
                q, qi, w, wi = q[:, None], qi[:, None], w[:, None], wi[:, None]
                c, ci, r, ri = c[None, :], ci[None, :], r[None, :], ri[None, :]
            x, xi = gap(q, qi, r, ri, w, wi, c, ci, METRIC, True, HAS_WEIGHTS, HAS_SCALE, True)
            if METRIC == "groups":
                part += term(x, xi, METRIC)
            else:
                acc += term(x, xi, METRIC)
        if METRIC == "groups":
            acc += tl.sqrt(part)
    return acc
