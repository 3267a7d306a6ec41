"""Queries against candidates on the GPU, in Triton: nothing of queries × candidates × features is stored.

B queries, K candidates of each query, N candidate rows, D features.

Tables may be float32, float16 or bfloat16; all is computed in float32, and a gradient has the type of its table.
Accumulation is in a fixed order: where a sum is split over programs, each writes its part and the parts are added
afterwards, so results are the same bit for bit from run to run. Scores without a gradient are never split, so that
equal rows tie exactly whatever the shapes. As on the CPU, the derivative of |x| at 0 is ±1, as its sign bit says.
Nothing waits for the GPU, so that all of it can be captured in a CUDA graph.

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

from pairre.kernels.cuda.aligned import aligned_product
from pairre.kernels.cuda.terms import finish, gap, load, slope, still, store, sums, term, times, width
from pairre.kernels.cuda.tiles import LAUNCH, UNROLL, by_feature, needs_int64, num_terms, of_formula, power, tiles
from pairre.kernels.reference.scores import Metric, check_arguments

_PROGRAMS = 1024  # about eight a multiprocessor on the largest GPUs: below that, a sum is split
_Side = tuple[Tensor | None, Tensor | None]  # query and scale, or weights and candidates


@triton.jit
def _forward_shared(
    Q, W, C, R, OUT, num_q, step_m, num_c, D, CHUNK,
    METRIC: tl.constexpr, HAS_SCALE: tl.constexpr, HAS_WEIGHTS: tl.constexpr, LONG: tl.constexpr, WHOLE: tl.constexpr,
    EVEN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Store part `program 2` of the scores of all pairs."""
    rm = tl.program_id(1) * BM + tl.arange(0, BM)
    rn = tl.program_id(0) * BN + tl.arange(0, BN)
    first = tl.program_id(2) * CHUNK
    last = tl.minimum(first + CHUNK, width(D, METRIC))
    acc = sums(
        Q, W, C, R, tl.program_id(1) * BM, rn, step_m, num_c, first, last, D,
        METRIC, HAS_SCALE, HAS_WEIGHTS, LONG, EVEN, BM, BN, UNROLL,
    )  # fmt: skip
    place = tl.program_id(2).to(tl.int64) * num_q * num_c + rm[:, None].to(tl.int64) * num_c + rn[None, :]
    tl.store(OUT + place, finish(acc, METRIC, WHOLE), mask=(rm < num_q)[:, None] & (rn < num_c)[None, :])


@triton.jit
def _forward_own(
    Q, W, C, IDS, OUT, num_places, D,
    METRIC: tl.constexpr, HAS_SCALE: tl.constexpr, HAS_IDS: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Score one query against BK rows of its own choice, or without ids against the row of its own number."""
    b = tl.program_id(0).to(tl.int64)
    rk = tl.program_id(1) * BK + tl.arange(0, BK)
    in_k = rk < num_places
    rows = b + tl.zeros([BK], tl.int64)
    if HAS_IDS:
        rows = tl.load(IDS + b * num_places + rk, mask=in_k, other=0)
    acc = tl.zeros([BK, BD], tl.float32)
    for d0 in range(0, width(D, METRIC), BD):
        rd = d0 + tl.arange(0, BD)
        in_d = rd < width(D, METRIC)
        q, qi = load(Q + b * D, rd, in_d, D // 2, METRIC, True)
        w, wi = load(W + b * D, rd, in_d, D // 2, METRIC, HAS_SCALE)
        c, ci = load(C, rows[:, None] * D + rd[None, :], in_k[:, None] & in_d[None, :], D // 2, METRIC, True)
        q, qi, w, wi = q[None, :], qi[None, :], w[None, :], wi[None, :]
        x, xi = gap(q, qi, q, qi, w, wi, c, ci, METRIC, True, False, HAS_SCALE, True)
        acc += term(x, xi, METRIC)
    tl.store(OUT + b * num_places + rk, finish(tl.sum(acc, axis=1), METRIC, True), mask=in_k)


@triton.jit
def _backward(
    A, E, B, F, IDS, G, DA, DE, num_rows, num_others, D, CHUNK,
    METRIC: tl.constexpr, HAS_A: tl.constexpr, HAS_E: tl.constexpr, HAS_B: tl.constexpr, HAS_F: tl.constexpr,
    HAS_IDS: tl.constexpr, LONG: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Store part `program 2` of the gradients of rows A, E for others B, F: all, or with BM = 1 those in IDS.

    G is [others, rows] for all others and [rows, others] with ids.
    """
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rd = tl.program_id(1) * BD + tl.arange(0, BD)
    in_m, in_d = rm < num_rows, rd < width(D, METRIC)
    inside = in_m[:, None] & in_d[None, :]
    step_g, step = num_rows, D
    if LONG:
        step_g, step = tl.cast(num_rows, tl.int64), tl.cast(D, tl.int64)
    place = rm[:, None] * step + rd[None, :]
    a, ai = load(A, place, inside, D // 2, METRIC, HAS_A)
    e, ei = load(E, place, inside, D // 2, METRIC, HAS_E)
    da, dai = tl.zeros([BM, BD], tl.float32), tl.zeros([BM, BD], tl.float32)
    de, dei = tl.zeros([BM, BD], tl.float32), tl.zeros([BM, BD], tl.float32)
    first = tl.program_id(2) * CHUNK
    last = tl.minimum(first + CHUNK, num_others)
    for j0 in range(first, last, UNROLL):
        for u in tl.static_range(UNROLL):
            j = j0 + u
            if HAS_IDS:
                row = tl.load(IDS + tl.program_id(0).to(tl.int64) * num_others + tl.minimum(j, num_others - 1))
                g = tl.load(G + rm.to(tl.int64) * num_others + j, mask=still(in_m, j, last), other=0.0)
            else:
                row = j
                g = tl.load(G + j * step_g + rm, mask=still(in_m, j, last), other=0.0)
            here = still(in_d, j, last)
            b, bi = load(B + row * step, rd, here, D // 2, METRIC, HAS_B)
            f, fi = load(F + row * step, rd, here, D // 2, METRIC, HAS_F)
            b, bi, f, fi = b[None, :], bi[None, :], f[None, :], fi[None, :]
            x, xi = gap(a, ai, b, bi, e, ei, f, fi, METRIC, HAS_A, HAS_B, HAS_E, HAS_F)
            s, si = slope(x, xi, tl.broadcast_to(g[:, None], [BM, BD]), METRIC)
            if METRIC == "dot":
                da += s * f
            elif HAS_A:
                t, ti = times(s, si, b, bi, METRIC, HAS_B)
                da -= t
                dai -= ti
            if HAS_E:
                t, ti = times(s, si, f, fi, METRIC, HAS_F)
                de += t
                dei += ti
    part = tl.program_id(2).to(tl.int64) * num_rows * D
    if HAS_A:
        store(DA + part, place, da, dai, inside, D // 2, METRIC)
    if HAS_E:
        store(DE + part, place, de, dei, inside, D // 2, METRIC)


@triton.jit
def _backward_own(
    Q, W, C, ORDER, STARTS, G, DC, num_places, D, METRIC: tl.constexpr, HAS_SCALE: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    """Store the gradient of one chosen row, gathered from its (query, place) pairs."""
    i = tl.program_id(0).to(tl.int64)
    rd = tl.program_id(1) * BD + tl.arange(0, BD)
    in_d = rd < width(D, METRIC)
    c, ci = load(C + i * D, rd, in_d, D // 2, METRIC, True)
    dc, dci = tl.zeros([BD], tl.float32), tl.zeros([BD], tl.float32)
    for position in range(tl.load(STARTS + i), tl.load(STARTS + i + 1)):
        pair = tl.load(ORDER + position)
        b = pair // num_places
        g = tl.broadcast_to(tl.load(G + pair), [BD])
        q, qi = load(Q + b * D, rd, in_d, D // 2, METRIC, True)
        w, wi = load(W + b * D, rd, in_d, D // 2, METRIC, HAS_SCALE)
        x, xi = gap(q, qi, q, qi, w, wi, c, ci, METRIC, True, False, HAS_SCALE, True)
        s, si = slope(x, xi, g, METRIC)
        if METRIC == "dot":
            dc += s * q
        else:
            t, ti = times(s, si, w, wi, METRIC, HAS_SCALE)
            dc += t
            dci += ti
    store(DC, i * D + rd, dc, dci, in_d, D // 2, METRIC)


@triton.jit
def _backward_pairs(Q, W, C, G, DQ, DW, DC, D, METRIC: tl.constexpr, HAS_SCALE: tl.constexpr, BD: tl.constexpr):
    """Store all gradients of one pair."""
    b = tl.program_id(0).to(tl.int64)
    rd = tl.program_id(1) * BD + tl.arange(0, BD)
    in_d, half = rd < width(D, METRIC), D // 2
    q, qi = load(Q + b * D, rd, in_d, half, METRIC, True)
    w, wi = load(W + b * D, rd, in_d, half, METRIC, HAS_SCALE)
    c, ci = load(C + b * D, rd, in_d, half, METRIC, True)
    x, xi = gap(q, qi, q, qi, w, wi, c, ci, METRIC, True, False, HAS_SCALE, True)
    s, si = slope(x, xi, tl.broadcast_to(tl.load(G + b), [BD]), METRIC)
    if METRIC == "dot":
        store(DQ + b * D, rd, s * c, si, in_d, half, METRIC)
        store(DC + b * D, rd, s * q, si, in_d, half, METRIC)
    else:
        store(DQ + b * D, rd, -s, -si, in_d, half, METRIC)
        t, ti = times(s, si, w, wi, METRIC, HAS_SCALE)
        store(DC + b * D, rd, t, ti, in_d, half, METRIC)
    if HAS_SCALE:
        t, ti = times(s, si, c, ci, METRIC, True)
        store(DW + b * D, rd, t, ti, in_d, half, METRIC)


def split_sum(programs: int, length: int, least: int, allowed: bool) -> int:
    """Return into how many parts a sum of `length` terms goes, so that the grid fills the GPU."""
    return max(1, min(-(-_PROGRAMS // max(programs, 1)), length // least)) if allowed else 1


class _ScoreCandidates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, metric: Metric, may_split: bool, *tables: Tensor | None) -> Tensor:
        q, w, c, ids, r = (None if t is None else t.contiguous() for t in tables)
        assert q is not None
        assert c is not None
        if ids is None:
            scores = shared_scores(metric, q, w, c, r, may_split)
        else:
            scores = _own_scores(metric, q, w, c, ids, ids.shape[1])
        ctx.save_for_backward(q, w, c, ids, r, scores if metric == "l2" else None)
        ctx.metric = metric
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, w, c, ids, r, scores = ctx.saved_tensors
        g = _upstream(gradient, scores)
        dq = dw = dc = dr = None
        if any(ctx.needs_input_grad[2:4]):
            dq, dw = _gradients(ctx.metric, (q, w), (r, c), ids, g, True)
        if any(ctx.needs_input_grad[4:]):
            if ids is None:
                dr, dc = _gradients(ctx.metric, (r, c), (q, w), None, g, False)
            else:
                dc = _own_gradient(ctx.metric, q, w, c, ids, g)
        return None, None, dq, dw, dc, None, dr


class _ScorePairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, metric: Metric, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
        q, w, c = query.contiguous(), None if scale is None else scale.contiguous(), candidates.contiguous()
        scores = _own_scores(metric, q, w, c, None, 1)[:, 0]
        ctx.save_for_backward(q, w, c, scores if metric == "l2" else None)
        ctx.metric = metric
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, w, c, scores = ctx.saved_tensors
        dq, dw, dc = torch.empty_like(q), None if w is None else torch.empty_like(w), torch.empty_like(c)
        if q.numel():
            terms = num_terms(ctx.metric, q)
            tile = power(terms, 1024)
            _backward_pairs[(len(q), triton.cdiv(terms, tile))](
                *(q, q if w is None else w, c, _upstream(gradient, scores), dq, dw, dc, q.shape[1]),
                METRIC=ctx.metric,
                HAS_SCALE=w is not None,
                BD=tile,
                **LAUNCH,
            )
        return None, dq, dw, dc


def _upstream(gradient: Tensor, norms: Tensor | None) -> Tensor:
    """Return the gradient of scores; for "l2", where scores are −norms, that of half the squares."""
    if norms is not None:
        gradient = (gradient / -norms).masked_fill_(norms == 0, 0)
    return gradient.contiguous()


def shared_scores(
    metric: str, q: Tensor, w: Tensor | None, c: Tensor, r: Tensor | None, may_split: bool, unroll: int = UNROLL
) -> Tensor:
    """Return the scores of all pairs by a metric or a formula; where a sum may be split, equal rows may not tie."""
    num_q, num_c, terms = len(q), len(c), num_terms(metric, q)
    tile_m, tile_n, grid = tiles(num_q, num_c, metric)
    parts = split_sum(grid[0] * grid[1], terms, 64, may_split)
    q, w = of_formula(metric, q, w)
    out = torch.empty(parts, num_q, num_c, device=q.device, dtype=torch.float32)
    if out.numel():
        tables = by_feature(tile_m, q, w, c, r)
        _forward_shared[(*grid, parts)](
            *(*tables, out, num_q, tables[0].shape[1], num_c, q.shape[1]),
            triton.cdiv(triton.cdiv(terms, parts), unroll) * unroll,
            METRIC=metric,
            HAS_SCALE=w is not None,
            HAS_WEIGHTS=r is not None,
            LONG=needs_int64(*(t.numel() for t in tables)),
            WHOLE=metric != "l2" or parts == 1,
            EVEN=terms % unroll == 0,
            BM=tile_m,
            BN=tile_n,
            UNROLL=unroll,
            **LAUNCH,
        )
    if parts == 1:
        return out[0]
    scores = out.sum(0)
    return scores.neg_().sqrt_().neg_() if metric == "l2" else scores


def _own_scores(metric: Metric, q: Tensor, w: Tensor | None, c: Tensor, ids: Tensor | None, num_places: int) -> Tensor:
    out = torch.empty(len(q), num_places, device=q.device, dtype=torch.float32)
    if out.numel():
        tile = power(num_places, 16)
        _forward_own[(len(q), triton.cdiv(num_places, tile))](
            *(q, q if w is None else w, c, ids, out, num_places, q.shape[1]),
            METRIC=metric,
            HAS_SCALE=w is not None,
            HAS_IDS=ids is not None,
            BK=tile,
            BD=power(num_terms(metric, q), 256),
            **LAUNCH,
        )
    return out


def _gradients(metric: Metric, mine: _Side, others: _Side, ids: Tensor | None, g: Tensor, of_queries: bool) -> _Side:
    """Return the gradients of the tables of one side; g is [B, places]."""
    (a, e), (b, f) = mine, others
    table = a if of_queries else e
    assert table is not None
    (num_rows, dim), terms = table.shape, num_terms(metric, table)
    num_others = g.shape[1] if of_queries else g.shape[0]
    most = 64 if metric == "modulus" else 128  # a complex tile takes the registers of two
    tile_m, tile_d = (power(num_rows, 16), power(terms, most)) if ids is None else (1, power(terms, 4 * most))
    grid = (triton.cdiv(num_rows, tile_m), triton.cdiv(terms, tile_d))
    parts = split_sum(grid[0] * grid[1], num_others, 32, not of_queries)
    da, de = (_room(t, parts) for t in mine)
    if num_rows:
        _backward[(*grid, parts)](
            *(table if t is None else t for t in (a, e, b, f)),
            *(ids, g.t().contiguous() if of_queries and ids is None else g, da, de),
            *(num_rows, num_others, dim, triton.cdiv(num_others, parts)),
            METRIC=metric,
            HAS_A=a is not None,
            HAS_E=e is not None,
            HAS_B=b is not None,
            HAS_F=f is not None,
            HAS_IDS=ids is not None,
            LONG=needs_int64(num_rows * dim, num_others * dim, num_rows * num_others),
            BM=tile_m,
            BD=tile_d,
            UNROLL=8 if of_queries else 4,
            **LAUNCH,
        )
    return _added(da, a), _added(de, e)


def _room(table: Tensor | None, parts: int) -> Tensor | None:
    """Return where the parts of a table's gradient go."""
    if table is None:
        return None
    return torch.empty(parts, *table.shape, device=table.device, dtype=table.dtype if parts == 1 else torch.float32)


def _added(parts: Tensor | None, table: Tensor | None) -> Tensor | None:
    if parts is None or table is None or len(parts) == 1:
        return None if parts is None else parts[0]
    return parts.sum(0).to(table.dtype)


def _own_gradient(metric: Metric, q: Tensor, w: Tensor | None, c: Tensor, ids: Tensor, g: Tensor) -> Tensor:
    flat, order = ids.flatten().sort(stable=True)
    starts = torch.searchsorted(flat, torch.arange(len(c) + 1, device=ids.device))
    dc = torch.empty_like(c)
    if dc.numel():
        terms = num_terms(metric, c)
        tile = power(terms, 512)
        _backward_own[(len(c), triton.cdiv(terms, tile))](
            *(q, q if w is None else w, c, order, starts, g, dc, ids.shape[1], c.shape[1]),
            METRIC=metric,
            HAS_SCALE=w is not None,
            BD=tile,
            **LAUNCH,
        )
    return dc


def score_candidates(
    metric: Metric,
    query: Tensor,
    scale: Tensor | None,
    candidates: Tensor,
    ids: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return what `reference.score_candidates` returns, in float32."""
    check_arguments(metric, query.shape[1], scale is not None, ids is not None, weights is not None)
    tables = (query, scale, candidates, ids, weights)
    # Not `needs_input_grad`, which is set without a gradient too.
    needed = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tables)
    if metric == "dot" and ids is None and needed:
        return aligned_product(query.float(), candidates.float())  # fast, but what ties does not always tie
    result: Tensor = _ScoreCandidates.apply(metric, needed, *tables)  # type: ignore[no-untyped-call]
    return result


def score_pairs(metric: Metric, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """Return what `reference.pair_score` returns for [B, D] tables, in float32."""
    check_arguments(metric, query.shape[1], scale is not None, False, False)
    result: Tensor = _ScorePairs.apply(metric, query, scale, candidates)  # type: ignore[no-untyped-call]
    return result
