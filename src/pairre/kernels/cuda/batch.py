"""Draw the batch of a step and mark known triples on a CUDA device, as `reference/batch.py` defines it."""

# Kernels carry no types: Triton infers them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pairre.graph.index import SideIndex
from pairre.kernels.reference.batch import BatchPlan, DrawnBatch
from pairre.support.randomness import GOLDEN, MIX1, MIX2, ROUNDS, grid

_GOLDEN, _MIX1, _MIX2 = tl.constexpr(GOLDEN), tl.constexpr(MIX1 % 2**64), tl.constexpr(MIX2 % 2**64)
_BLOCK = 128


@triton.jit
def random_bits(stream, counter):
    """Return `randomness.bits` as unsigned integers."""
    x = (stream + (counter + 1) * _GOLDEN).to(tl.uint64, bitcast=True)
    x = (x ^ (x >> 30)) * _MIX1
    x = (x ^ (x >> 27)) * _MIX2
    return x ^ (x >> 31)


@triton.jit
def _integers(stream, counter, below):
    """Return `randomness.integers`."""
    x = random_bits(stream, counter)
    below = below.to(tl.uint64)
    return (((x >> 32) * below + ((x & 0xFFFFFFFF) * below >> 32)) >> 32).to(tl.int64)


@triton.jit
def _shift(stream, place, rows, columns, ROUNDS: tl.constexpr):
    """Return one pass of `randomness.permute` over the grid."""
    row, column = place // columns, place % columns
    for i in tl.static_range(ROUNDS):
        row += _integers(stream, 2 * i + 2 * ROUNDS * column, rows)
        row = tl.where(row >= rows, row - rows, row)
        column += _integers(stream, 2 * i + 1 + 2 * ROUNDS * row, columns)
        column = tl.where(column >= columns, column - columns, column)
    return row * columns + column


@triton.jit(do_not_specialize=["num", "batch", "num_negatives", "num_entities", "rows", "columns"])
def _draw(
    TRIPLES, TRIPLE_WEIGHT, STEP, ENTITIES, RELATION, WEIGHT, order, negatives,
    num, batch, num_negatives, num_entities, rows, columns,
    TAIL: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Draw triples in the first programs, negatives in the others."""
    step = tl.load(STEP)
    programs = tl.cdiv(batch, BLOCK)
    if tl.program_id(0) < programs:
        ru = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = ru < batch
        half, epochs = step // 2, num.to(tl.int64) // batch
        stream = random_bits(order, 2 * (half // epochs) + step % 2).to(tl.int64, bitcast=True)
        place = tl.minimum((half % epochs) * batch + ru, num - 1).to(tl.int64)
        wide, high = rows.to(tl.int64), columns.to(tl.int64)
        place = _shift(stream, place, wide, high, ROUNDS)
        while tl.max((place >= num).to(tl.int32), axis=0) > 0:
            place = tl.where(place >= num, _shift(stream, place, wide, high, ROUNDS), place)
        head = tl.load(TRIPLES + 3 * place, mask=inside, other=0).to(tl.int64)
        relation = tl.load(TRIPLES + 3 * place + 1, mask=inside, other=0).to(tl.int64)
        tail = tl.load(TRIPLES + 3 * place + 2, mask=inside, other=0).to(tl.int64)
        tl.store(ENTITIES + ru, head if TAIL else tail, mask=inside)
        tl.store(ENTITIES + batch + ru, tail if TAIL else head, mask=inside)
        tl.store(RELATION + ru, relation, mask=inside)
        tl.store(WEIGHT + ru, tl.load(TRIPLE_WEIGHT + place, mask=inside, other=0.0), mask=inside)
    else:
        ru = (tl.program_id(0) - programs) * BLOCK + tl.arange(0, BLOCK)
        chosen = _integers(negatives, step * num_negatives + ru, num_entities.to(tl.int64))
        tl.store(ENTITIES + 2 * batch + ru, chosen, mask=ru < num_negatives)


def draw_batch(plan: BatchPlan, corrupted: int, step: Tensor) -> DrawnBatch:
    """Return what `reference.draw_batch` returns."""
    device, batch = plan.triples.device, plan.batch_size
    result = DrawnBatch(
        torch.empty(2 * batch + plan.num_negatives, dtype=torch.int64, device=device),
        torch.empty(batch, dtype=torch.int64, device=device),
        torch.empty(batch, device=device),
    )
    programs = triton.cdiv(batch, _BLOCK) + triton.cdiv(plan.num_negatives, _BLOCK)
    _draw[(programs,)](
        *(plan.triples, plan.weight, step, result.entities, result.relation, result.weight),
        *(plan.order_stream, plan.negatives_stream, len(plan.triples), batch, plan.num_negatives, plan.negatives_below),
        *grid(len(plan.triples)),
        TAIL=corrupted == 2,
        ROUNDS=ROUNDS,
        BLOCK=_BLOCK,
    )
    return result


@triton.jit(do_not_specialize=["num_pairs", "num_second", "chunk_size"])
def _known_mask(
    KEYS, OFFSETS, MEMBERS, ANCHOR, RELATION, CANDIDATES, OUT, num_pairs, num_second, chunk_size, K, BK: tl.constexpr
):
    """Look the pair up among all pairs, then each candidate among the members of the pair."""
    b = tl.program_id(0).to(tl.int64)
    rk = tl.program_id(1) * BK + tl.arange(0, BK)
    key = tl.load(ANCHOR + b) * num_second + tl.load(RELATION + b)
    low, high = tl.full([], 0, tl.int64), num_pairs.to(tl.int64)
    while low < high:
        middle = (low + high) // 2
        below = tl.load(KEYS + middle) < key
        low = tl.where(below, middle + 1, low)
        high = tl.where(below, high, middle)
    there = low < num_pairs
    there = there & (tl.load(KEYS + low, mask=there, other=-1) == key)
    first = tl.load(OFFSETS + low, mask=there, other=0)
    last = tl.load(OFFSETS + low + 1, mask=there, other=0)
    candidate = tl.load(CANDIDATES + b // chunk_size * K + rk, mask=rk < K, other=0)
    lower = first + tl.zeros([BK], tl.int64)
    size = last - first
    while size > 0:  # all candidates halve the same range: the first place that is not below the candidate
        step = (size + 1) // 2
        middle = lower + step - 1
        below = tl.load(MEMBERS + middle, mask=middle < last, other=2147483647) < candidate
        lower = tl.where(below, lower + step, lower)
        size = size - step
    found = tl.load(MEMBERS + lower, mask=lower < last, other=-1) == candidate
    tl.store(OUT + b * K + rk, found.to(tl.int8), mask=rk < K)


def known_mask(index: SideIndex, anchor: Tensor, relation: Tensor, candidates: Tensor, chunk_size: int) -> Tensor:
    """Return what `reference.known_mask` returns."""
    num = candidates.shape[1]
    out = torch.empty(len(anchor), num, dtype=torch.bool, device=anchor.device)
    if out.numel():
        block = min(1024, triton.next_power_of_2(num))
        _known_mask[(len(anchor), triton.cdiv(num, block))](
            *(index.pair_keys, index.offsets, index.members, anchor, relation, candidates, out.view(torch.int8)),
            *(len(index.pair_keys), index.num_second, chunk_size, num),
            BK=block,
            num_warps=max(1, min(8, block // 128)),
        )
    return out
