"""Collect pairs above a threshold on the GPU: the program that scores a tile writes what reaches it, nothing else.

Pairs that reach the threshold are few, so that each takes its place in the result by an atomic counter. The L1 without
scale comes from CUDA C++, everything else from Triton.
"""

# Kernels carry no types: Triton infers them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pairre.kernels.cuda import native
from pairre.kernels.cuda.terms import finish, sums, width
from pairre.kernels.cuda.tiles import LAUNCH, UNROLL, by_feature, needs_int64, num_terms, tiles
from pairre.kernels.reference import collect as reference
from pairre.kernels.reference.collect import Collected
from pairre.kernels.reference.scores import Metric, PairScore, check_arguments


@triton.jit
def _collect(
    Q, W, C, ROW, COLUMN, SCORE, NUM, threshold, most, num_q, step_m, num_c, D,
    METRIC: tl.constexpr, HAS_SCALE: tl.constexpr, LONG: tl.constexpr, EVEN: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Write the scores of a tile that reach the threshold, as long as there is room."""
    rm = tl.program_id(1) * BM + tl.arange(0, BM)
    rn = tl.program_id(0) * BN + tl.arange(0, BN)
    m0, last = tl.program_id(1) * BM, width(D, METRIC)
    acc = sums(Q, W, C, C, m0, rn, step_m, num_c, 0, last, D, METRIC, HAS_SCALE, False, LONG, EVEN, BM, BN, UNROLL)
    score = finish(acc, METRIC, True)
    found = (score >= threshold) & (rm < num_q)[:, None] & (rn < num_c)[None, :]
    if tl.max(found.to(tl.int32)) > 0:
        place = tl.atomic_add(NUM + tl.zeros([BM, BN], tl.int32), tl.full([BM, BN], 1, tl.int64), mask=found)
        found = found & (place < most)
        tl.store(ROW + place, rm[:, None] + tl.zeros([BM, BN], tl.int32), mask=found)
        tl.store(COLUMN + place, rn[None, :] + tl.zeros([BM, BN], tl.int32), mask=found)
        tl.store(SCORE + place, score, mask=found)


@torch.no_grad()
def collect_above(
    metric: Metric | PairScore, query: Tensor, scale: Tensor | None, candidates: Tensor, threshold: float, most: int
) -> Collected:
    """Return what `reference.collect_above` returns, in float32."""
    if callable(metric):
        return reference.collect_above(metric, query, scale, candidates, threshold, most)
    (num_q, dim), num_c, device = query.shape, len(candidates), query.device
    check_arguments(metric, dim, scale is not None, False, False)
    row, column = (torch.empty(most, dtype=torch.int32, device=device) for _ in range(2))
    score = torch.empty(most, device=device)
    num = torch.zeros(1, dtype=torch.int64, device=device)
    if num_q and num_c:
        plain = query.dtype == candidates.dtype == torch.float32 and scale is None
        if metric == "l1" and plain and dim and native.available():
            q, c = query.contiguous(), candidates.contiguous()
            native.collect_above(q, c, torch.full((1,), threshold, device=device), row, column, score, num)
        else:
            tile_m, tile_n, grid = tiles(num_q, num_c, metric)
            tables = by_feature(tile_m, query, scale, candidates)
            _collect[grid](
                *(*tables, row, column, score, num),
                *(threshold, most, num_q, tables[0].shape[1], num_c, dim),
                METRIC=metric,
                HAS_SCALE=scale is not None,
                LONG=needs_int64(*(t.numel() for t in tables)),
                EVEN=num_terms(metric, query) % UNROLL == 0,
                BM=tile_m,
                BN=tile_n,
                UNROLL=UNROLL,
                **LAUNCH,
            )
    total = int(num)
    return Collected(row[:total].long(), column[:total].long(), score[:total], total)
