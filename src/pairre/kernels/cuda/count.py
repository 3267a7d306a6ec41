"""Ranks on the GPU: the program that computes scores counts them, and nothing of queries × candidates is stored.

B queries, N candidate rows, D features. Scores are those of `compare` without a gradient, bit for bit: each is summed
feature by feature by one thread, whatever the tile.
"""

# Kernels carry no types: Triton finds them out.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pairre.kernels.cuda.compare import LAUNCH, by_feature, tiles, wide
from pairre.kernels.cuda.terms import finish, gap, load, still, sums, term, width
from pairre.kernels.reference.compare import Kind, check


@triton.jit
def _true_scores(
    Q, W, C, OUT, num_q, D, KIND: tl.constexpr, HAS_SCALE: tl.constexpr, BM: tl.constexpr, UNROLL: tl.constexpr
):
    """Scores of pairs, one a thread, summed in the order of `sums`; tables are [D, B]."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    in_m = rm < num_q
    step = tl.cast(num_q, tl.int64)
    half = D // 2 * step
    last = width(D, KIND)
    acc = tl.zeros([BM], tl.float32)
    for k0 in range(0, last, UNROLL):
        for u in tl.static_range(UNROLL):
            here, shift = still(in_m, k0 + u, last), (k0 + u) * step
            q, qi = load(Q + shift, rm, here, half, KIND, True)
            w, wi = load(W + shift, rm, here, half, KIND, HAS_SCALE)
            c, ci = load(C + shift, rm, here, half, KIND, True)
            x, xi = gap(q, qi, q, qi, w, wi, c, ci, KIND, True, False, HAS_SCALE, True)
            acc += term(x, xi, KIND)
    tl.store(OUT + rm, finish(acc, KIND, True), mask=in_m)


@triton.jit(do_not_specialize=["first"])
def _count(
    Q, W, C, TRUE, BEGIN, END, MEMBERS, OWN, HIGHER, EQUAL, first, num_q, num_c, D,
    KIND: tl.constexpr, HAS_SCALE: tl.constexpr, WIDE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Counts of a tile of scores, added to those of its queries: whole numbers, so that the order does not matter."""
    rm = tl.program_id(1) * BM + tl.arange(0, BM)
    rn = tl.program_id(0) * BN + tl.arange(0, BN)
    in_m = rm < num_q
    acc = sums(Q, W, C, C, rm, rn, num_q, num_c, 0, width(D, KIND), D, KIND, HAS_SCALE, False, WIDE, BM, BN, UNROLL)
    entity = first + rn
    own = tl.load(OWN + rm, mask=in_m, other=-1).to(tl.int32)
    left_out = (rn >= num_c)[None, :] | (own[:, None] == entity[None, :])
    score = tl.where(left_out, float("nan"), finish(acc, KIND, True))  # NaN is neither higher nor equal

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


def true_scores(kind: Kind, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """As `reference.true_scores`, in float32."""
    check(kind, query, scale)
    out = torch.empty(len(query), device=query.device, dtype=torch.float32)
    if len(query):
        _true_scores[(triton.cdiv(len(query), 64),)](
            *(*by_feature(query, scale, candidates), out, *query.shape),
            KIND=kind,
            HAS_SCALE=scale is not None,
            BM=64,
            UNROLL=8,
            **{**LAUNCH, "num_warps": 2},
        )
    return out


def count_above(
    kind: Kind,
    query: Tensor,
    scale: Tensor | None,
    candidates: Tensor,
    true: Tensor,
    begin: Tensor,
    end: Tensor,
    members: Tensor,
    own: Tensor,
    first: int,
) -> tuple[Tensor, Tensor]:
    """As `reference.count_above`."""
    check(kind, query, scale)
    (num_q, dim), num_c = query.shape, len(candidates)
    higher, equal = torch.zeros(2, num_q, device=query.device, dtype=torch.int64)
    tile_m, tile_n, grid = tiles(num_q, num_c)
    if num_q and num_c:
        _count[grid](
            *by_feature(query, scale, candidates),
            *(t.contiguous() for t in (true, begin, end, members, own)),
            *(higher, equal, first, num_q, num_c, dim),
            KIND=kind,
            HAS_SCALE=scale is not None,
            WIDE=wide(query.numel(), candidates.numel()),
            BM=tile_m,
            BN=tile_n,
            UNROLL=2,
            **LAUNCH,
        )
    return higher, equal
