"""Count candidates above the true one on the GPU: the program that scores a tile counts it, nothing is stored.

B queries, N candidate rows, D features. Scores are those of `score_candidates` without a gradient, bit for
bit: each is summed feature by feature by one thread, whatever the tile.
"""

# Kernels carry no types: Triton infers them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pairre.kernels.cuda.terms import finish, sums, width
from pairre.kernels.cuda.tiles import LAUNCH, UNROLL, by_feature, needs_int64, num_terms, of_formula, tiles
from pairre.kernels.reference.ranks import RankingBatch
from pairre.kernels.reference.scores import Formula, Metric, check_arguments


@triton.jit
def _true_scores(
    Q, W, C, OUT, num_q, step_m, D,
    METRIC: tl.constexpr, HAS_SCALE: tl.constexpr, EVEN: tl.constexpr, BM: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Score pairs, one a thread; tables are [D, B]."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    m0, last = tl.program_id(0) * BM, width(D, METRIC)
    acc = sums(
        Q, W, C, C, m0, rm, step_m, num_q, 0, last, D, METRIC, HAS_SCALE, False, True, EVEN, BM, BM, UNROLL, True
    )
    tl.store(OUT + rm, finish(acc, METRIC, True), mask=rm < num_q)


@triton.jit(do_not_specialize=["first"])
def _count(
    Q, W, C, TRUE, BEGIN, END, MEMBERS, OWN, HIGHER, EQUAL, first, num_q, step_m, num_c, D,
    METRIC: tl.constexpr, HAS_SCALE: tl.constexpr, LONG: tl.constexpr, EVEN: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Add the counts of a tile of scores to those of its queries; integers, so that the order does not matter."""
    rm = tl.program_id(1) * BM + tl.arange(0, BM)
    rn = tl.program_id(0) * BN + tl.arange(0, BN)
    in_m = rm < num_q
    m0, last = tl.program_id(1) * BM, width(D, METRIC)
    acc = sums(Q, W, C, C, m0, rn, step_m, num_c, 0, last, D, METRIC, HAS_SCALE, False, LONG, EVEN, BM, BN, UNROLL)
    entity = first + rn
    own = tl.load(OWN + rm, mask=in_m, other=-1).to(tl.int32)
    left_out = (rn >= num_c)[None, :] | (own[:, None] == entity[None, :])
    score = tl.where(left_out, float("nan"), finish(acc, METRIC, True))  # NaN is neither higher nor equal

    # Where the tile's entities begin in the list of each query: a binary search, as long as the longest list.
    low = tl.load(BEGIN + rm, mask=in_m, other=0)
    end = tl.load(END + rm, mask=in_m, other=0)
    size = end - low
    start, stop = first + tl.program_id(0) * BN, first + tl.program_id(0) * BN + BN
    longest = tl.max(size, 0)
    while longest > 0:
        half = size // 2
        below = tl.load(MEMBERS + low + half, mask=size > 0, other=2147483647) < start
        low = tl.where(below, low + half + 1, low)
        size = tl.where(below, size - half - 1, half)
        longest = longest // 2
    # Then through the few that lie in it.
    member = tl.load(MEMBERS + low, mask=low < end, other=2147483647)
    while tl.min(member, 0) < stop:
        score = tl.where(member[:, None] == entity[None, :], float("nan"), score)
        low += 1
        member = tl.load(MEMBERS + low, mask=low < end, other=2147483647)

    true = tl.load(TRUE + rm, mask=in_m, other=float("nan"))[:, None]
    tl.atomic_add(HIGHER + rm, tl.sum((score > true).to(tl.int32), 1).to(tl.int64), mask=in_m)
    tl.atomic_add(EQUAL + rm, tl.sum((score == true).to(tl.int32), 1).to(tl.int64), mask=in_m)


def _kernel_of(metric: Metric | Formula, query: Tensor, scale: Tensor | None) -> tuple[str, int]:
    """Return what kernels call a metric or a formula, and how many features it adds up together."""
    if isinstance(metric, Formula):
        return metric.kernel, metric.unroll
    check_arguments(metric, query.shape[1], scale is not None, False, False)
    return metric, UNROLL


def true_scores(metric: Metric | Formula, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """Return what `reference.true_scores` returns, in float32."""
    name, unroll = _kernel_of(metric, query, scale)
    query, scale = of_formula(name, query, scale)
    out = torch.empty(len(query), device=query.device, dtype=torch.float32)
    if len(query):
        tables = by_feature(64, query, scale, candidates)
        _true_scores[(triton.cdiv(len(query), 64),)](
            *(*tables, out, len(query), tables[0].shape[1], query.shape[1]),
            METRIC=name,
            HAS_SCALE=scale is not None,
            EVEN=num_terms(name, query) % unroll == 0,
            BM=64,
            UNROLL=unroll,
            **{**LAUNCH, "num_warps": 2},
        )
    return out


def count_above(
    batch: RankingBatch, candidates: Tensor, first_id: int, formula: Formula | None = None
) -> tuple[Tensor, Tensor]:
    """Return what `reference.count_above` returns, by a formula where the metric is one of a model's own."""
    (num_q, dim), num_c = batch.query.shape, len(candidates)
    metric = formula or batch.metric
    assert not callable(metric)
    name, unroll = _kernel_of(metric, batch.query, batch.scale)
    query, scale = of_formula(name, batch.query, batch.scale)
    higher, equal = torch.zeros(2, num_q, device=batch.query.device, dtype=torch.int64)
    tile_m, tile_n, grid = tiles(num_q, num_c, name)
    known = (batch.known_begin, batch.known_end, batch.known_ids)
    if num_q and num_c:
        tables = by_feature(tile_m, query, scale, candidates)
        _count[grid](
            *tables,
            *(t.contiguous() for t in (batch.true_score, *known, batch.true_id)),
            *(higher, equal, first_id, num_q, tables[0].shape[1], num_c, dim),
            METRIC=name,
            HAS_SCALE=scale is not None,
            LONG=needs_int64(*(t.numel() for t in tables)),
            EVEN=num_terms(name, query) % unroll == 0,
            BM=tile_m,
            BN=tile_n,
            UNROLL=unroll,
            **LAUNCH,
        )
    return higher, equal
