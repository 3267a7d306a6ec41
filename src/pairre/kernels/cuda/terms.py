"""What a metric of comparison is, as pieces of Triton kernels: a term of its sum, the slope of a term, a tile of sums.

x = a ∘ b − e ∘ f: query, weights, scale, candidates; or the other way round where a program holds candidates. Values
come in twos, the real and the imaginary part (…i); where features are real, the second is never used, and the compiler
drops it.

Beside the metrics there are formulas of models, which add up UNROLL features together: "groups" takes the length of
each group; in "likelihood" and "divergence" the second of two values is a variance, and `of_formula` has brought the
scale to what is needed of it. These take one logarithm of the product of all variances, whose exponent is added up
beside it so that it never overflows, and one division of UNROLL of them.
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
def _filled(T, place, mask, other, PLAIN: tl.constexpr):
    """Return values of a table, another one where the mask is empty; a PLAIN load has no mask."""
    value = tl.load(T + place) if PLAIN else tl.load(T + place, mask=mask, other=other)
    return value.to(tl.float32)


@triton.jit
def load(T, place, mask, half, METRIC: tl.constexpr, HAS: tl.constexpr, PLAIN: tl.constexpr = False):
    """Return values of a table, if there is one (else T is any), and their imaginary parts, `half` elements on."""
    real = mask.to(tl.float32)
    if HAS:
        real = _filled(T, place, mask, 0.0, PLAIN)
    imaginary = real
    if HAS and METRIC == "modulus":
        imaginary = _filled(T + half, place, mask, 0.0, PLAIN)
    elif HAS and METRIC == "likelihood":  # masked variances add up to 1 / 2π, and to 1: then a term is 0
        imaginary = _filled(T + half, place, mask, 0.07957747154594767, PLAIN)
    elif HAS and METRIC == "divergence":
        imaginary = _filled(T + half, place, mask, 0.5, PLAIN)
    return real, imaginary


@triton.jit
def load_scale(W, place, mask, half, METRIC: tl.constexpr, HAS: tl.constexpr, PLAIN: tl.constexpr):
    """Return values of the scales, and their imaginary parts where features are complex."""
    if METRIC == "modulus":
        w, wi = load(W, place, mask, half, METRIC, HAS, PLAIN)
    else:
        w, wi = load(W, place, mask, half, "l1", HAS, PLAIN)
        if METRIC == "divergence" and not PLAIN:
            w = tl.where(mask, w, 1.0)
    return w, wi


@triton.jit
def store(T, place, real, imaginary, mask, half, METRIC: tl.constexpr):
    """Store values and their imaginary parts where `load` reads them."""
    tl.store(T + place, real, mask=mask)
    if METRIC == "modulus":
        tl.store(T + half + place, imaginary, mask=mask)


@triton.jit
def gap(
    a, ai, b, bi, e, ei, f, fi, METRIC: tl.constexpr, A: tl.constexpr, B: tl.constexpr, E: tl.constexpr, F: tl.constexpr
):
    """Return x = a ∘ b − e ∘ f, where A, B, E, F say which there are; for "dot", a ∘ f; for variances, see `joined`."""
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
        x, xi = a - f, ai + fi
    elif METRIC == "divergence":
        x, xi = a - f, ai + fi
        x = tl.fma(x, x, xi)
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
    elif METRIC == "l2":
        x = x * x
    elif METRIC == "modulus":
        x = tl.sqrt(tl.fma(x, x, xi * xi))
    return x


@triton.jit
def joined(part, product, x, xi, w, METRIC: tl.constexpr):
    """Return what the features that are added up together come to with one more: two values, see `closed`."""
    if METRIC == "groups":
        part = tl.fma(x, x, part)
    elif METRIC == "likelihood":  # Σ x² / V as one fraction
        part, product = tl.fma(part, xi, x * x * product), product * xi
    elif METRIC == "divergence":
        part, product = tl.fma(x, tl.broadcast_to(w, x.shape), part), product * (xi * w)
    return part, product


@triton.jit
def closed(part, product, METRIC: tl.constexpr, UNROLL: tl.constexpr):
    """Return what features that are added up together add to the sum, without the logarithm of their product."""
    if METRIC == "groups":
        part = tl.sqrt(part)
    elif METRIC == "likelihood":
        part = part / product + 1.8378770664093453 * UNROLL  # log 2π
    elif METRIC == "divergence":
        part = part - UNROLL
    return part


@triton.jit
def logarithm(mantissa, exponent):
    """Return the natural logarithm of mantissa · 2^exponent."""
    return tl.fma(exponent.to(tl.float32), 0.6931471805599453, tl.log(mantissa))


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
    Q, W, C, R, m0, rn, step_m, num_c, first, last, D,
    METRIC: tl.constexpr, HAS_SCALE: tl.constexpr, HAS_WEIGHTS: tl.constexpr, LONG: tl.constexpr, EVEN: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr, PAIRS: tl.constexpr = False,
):  # fmt: skip
    """Σ of terms first to last for all pairs of a tile, from tables stored by feature: Q, W [D, step_m]; C, R [D, N].

    The tile begins at query m0; its candidates are rn. Loads have no masks, as these take registers and instructions:
    there are queries for all of a tile, candidates past the last one are the last again, and features past `last` are
    masked unless they come out EVEN. With `PAIRS`, query and candidate m are one pair: the sums are [BM], in the same
    order.
    """
    Q, W, rm = Q + m0, W + m0, tl.arange(0, BM)
    rn, step_n = tl.minimum(rn, num_c - 1), num_c
    if LONG:
        step_m, step_n = tl.cast(step_m, tl.int64), tl.cast(num_c, tl.int64)
    half_m, half_n = D // 2 * step_m, D // 2 * step_n
    acc = tl.zeros([BM] if PAIRS else [BM, BN], tl.float32)
    mantissa, exponent = tl.zeros_like(acc) + 1.0, tl.zeros_like(acc).to(tl.int32)
    variances: tl.constexpr = METRIC == "likelihood" or METRIC == "divergence"
    joins: tl.constexpr = METRIC == "groups" or variances
    for k0 in range(first, last, UNROLL):
        part, product = tl.zeros_like(acc), tl.zeros_like(acc) + 1.0
        for u in tl.static_range(UNROLL):
            k = k0 + u
            here_m, here_n = k + tl.zeros_like(rm) < last, k + tl.zeros_like(rn) < last
            q, qi = load(Q + k * step_m, rm, here_m, half_m, METRIC, True, EVEN)
            w, wi = load_scale(W + k * step_m, rm, here_m, half_m, METRIC, HAS_SCALE, EVEN)
            c, ci = load(C + k * step_n, rn, here_n, half_n, METRIC, True, EVEN)
            r, ri = load(R + k * step_n, rn, here_n, half_n, METRIC, HAS_WEIGHTS, EVEN)
            if not PAIRS:
                q, qi, w, wi = q[:, None], qi[:, None], w[:, None], wi[:, None]
                c, ci, r, ri = c[None, :], ci[None, :], r[None, :], ri[None, :]
            x, xi = gap(q, qi, r, ri, w, wi, c, ci, METRIC, True, HAS_WEIGHTS, HAS_SCALE, True)
            if joins:
                part, product = joined(part, product, x, xi, w, METRIC)
            else:
                acc += term(x, xi, METRIC)
        if joins:
            acc += closed(part, product, METRIC, UNROLL)
        if variances:
            bits = (mantissa * product).to(tl.int32, bitcast=True)
            exponent += (bits >> 23) - 127
            mantissa = ((bits & -2139095041) | 1065353216).to(tl.float32, bitcast=True)
    if METRIC == "likelihood":
        acc += logarithm(mantissa, exponent)
    elif METRIC == "divergence":
        acc -= logarithm(mantissa, exponent)
    return acc
