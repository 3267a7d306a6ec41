"""Gather and update rows of a table on a CUDA device, as `reference/rows.py` defines it: one program a row.

The table may be stored in half precision; all arithmetic is in float32.
"""

# Kernels carry no types: Triton infers them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from pairre.kernels.cuda.batch import random_bits
from pairre.kernels.reference.rows import ADAGRAD_EPS, BETA1, BETA2, EPS, MAX_CATCH_UP, AdamState, IdGroups
from pairre.kernels.reference.rows import group_ids as sort

_MOST_BY_RANK = 8192  # so many ids are sorted by counting, for each, the ones before it: one launch
_LOG1, _LOG2 = math.log2(BETA1), math.log2(BETA2)


@triton.jit
def _rank(IDS, SORTED, ORDER, ENDS, num, BU: tl.constexpr, BJ: tl.constexpr):
    """Store each id at the position that is the number of ids before it; equal ids keep their order."""
    ru = tl.program_id(0) * BU + tl.arange(0, BU)
    mine = tl.load(IDS + ru, mask=ru < num, other=0)
    before, after = tl.zeros([BU, BJ], tl.int32), tl.zeros([BU, BJ], tl.int32)
    for j in range(0, num, BJ):
        rj = j + tl.arange(0, BJ)
        other = tl.load(IDS + rj, mask=rj < num, other=9223372036854775807)[None, :]
        less, same = other < mine[:, None], other == mine[:, None]
        before += (less | (same & (rj[None, :] < ru[:, None]))).to(tl.int32)
        after += (less | same).to(tl.int32)
    place = tl.sum(before, axis=1)
    tl.store(SORTED + place, mine, mask=ru < num)
    tl.store(ORDER + place, ru.to(tl.int64), mask=ru < num)
    tl.store(ENDS + place, tl.sum(after, axis=1).to(tl.int64), mask=ru < num)


def group_ids(ids: Tensor) -> IdGroups:
    """Return what `reference.group_ids` returns."""
    num = len(ids)
    if not 0 < num <= _MOST_BY_RANK:
        return sort(ids)
    out = IdGroups(*(torch.empty_like(ids) for _ in range(3)))
    _rank[(triton.cdiv(num, 4),)](ids, out.ids, out.order, out.ends, num, BU=4, BJ=512, num_warps=2)
    return out


@triton.jit
def _stochastic_round(x, TABLE, row, D, rd, now):
    """Return a value as the table stores it, as `reference.stochastic_round` does."""
    if TABLE.dtype.element_ty == tl.float32:
        return x
    digits: tl.constexpr = 10 if TABLE.dtype.element_ty == tl.float16 else 7
    least: tl.constexpr = 113 if TABLE.dtype.element_ty == tl.float16 else 27
    exponent = tl.maximum((x.to(tl.int32, bitcast=True) >> 23) & 255, least) - digits
    unit = (exponent << 23).to(tl.float32, bitcast=True)
    dither = (random_bits(now.to(tl.int64), row * D + rd) >> 40).to(tl.float32) * 5.9604644775390625e-08
    return (tl.floor(x / unit + dither) * unit).to(TABLE.dtype.element_ty)


@triton.jit
def _rates(RATES, step, end):
    """Return the two numbers that Adam needs of a step."""
    there = step < end
    return tl.load(RATES + 2 * step, mask=there, other=0.0), tl.load(RATES + 2 * step + 1, mask=there, other=0.0)


@triton.jit
def _catch_up(x, m, v, seen, now, RATES, beta1, beta2, eps, log1, log2, MAX_CATCH_UP: tl.constexpr):
    """Apply the steps from `seen` to `now` to a row without a gradient: each decays the moments and moves the row."""
    seen = tl.where(seen < 0, now, seen)
    end = tl.minimum(now, seen + MAX_CATCH_UP)
    push, spread, decay = m, tl.sqrt(v), tl.sqrt(beta2)
    rate, root = _rates(RATES, seen, end)
    for j in range(seen, end):
        following, following_root = _rates(RATES, j + 1, end)  # loaded before it is needed
        push = beta1 * push
        spread = decay * spread
        x = x - rate * push / (spread * root + eps)
        rate, root = following, following_root
    missed = (now - seen).to(tl.float32)
    return x, m * tl.exp2(missed * log1), v * tl.exp2(missed * log2)


@triton.jit
def _gather(
    TABLE, MEAN, SQUARE, SEEN, RATES, IDS, STEP, OUT, D, beta1, beta2, eps, log1, log2,
    LAZY: tl.constexpr, MAX_CATCH_UP: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Gather row IDS[u] as it is now, zeros for −1."""
    u = tl.program_id(0).to(tl.int64)
    rd = tl.program_id(1) * BD + tl.arange(0, BD)
    row = tl.load(IDS + u).to(tl.int64)
    inside = (rd < D) & (row + tl.zeros_like(rd) >= 0)
    x = tl.load(TABLE + row * D + rd, mask=inside, other=0.0).to(tl.float32)
    if LAZY:
        seen = tl.load(SEEN + tl.maximum(row, 0))
        m = tl.load(MEAN + row * D + rd, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(SQUARE + row * D + rd, mask=inside, other=0.0).to(tl.float32)
        now = tl.load(STEP).to(tl.int32)
        x, m, v = _catch_up(x, m, v, seen, now, RATES, beta1, beta2, eps, log1, log2, MAX_CATCH_UP)
    tl.store(OUT + u * D + rd, x, mask=rd < D)


@triton.jit
def _flush(
    TABLE, MEAN, SQUARE, SEEN, RATES, STEP, D, beta1, beta2, eps, log1, log2,
    MAX_CATCH_UP: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    rd = tl.program_id(1) * BD + tl.arange(0, BD)
    place, inside = row * D + rd, rd < D
    seen = tl.load(SEEN + row)
    now = tl.load(STEP).to(tl.int32)
    if (seen >= 0) & (seen < now):
        x = tl.load(TABLE + place, mask=inside, other=0.0).to(tl.float32)
        m = tl.load(MEAN + place, mask=inside, other=0.0)
        v = tl.load(SQUARE + place, mask=inside, other=0.0)
        x, m, v = _catch_up(x, m, v, seen, now, RATES, beta1, beta2, eps, log1, log2, MAX_CATCH_UP)
        tl.store(TABLE + place, _stochastic_round(x, TABLE, row, D, rd, now), mask=inside)
        tl.store(MEAN + place, m, mask=inside)
        tl.store(SQUARE + place, v, mask=inside)


@triton.jit
def _mark(SEEN, IDS, STEP, num, BLOCK: tl.constexpr):
    """Store that rows have seen a step; a launch of its own, because `_adam` reads the old number."""
    ru = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(IDS + ru, mask=ru < num, other=-1)
    tl.store(SEEN + row, tl.load(STEP).to(tl.int32) + 1 + tl.zeros_like(ru), mask=row >= 0)


@triton.jit
def _total(ORDER, G, first, end, D, rd, UNROLL: tl.constexpr):
    """Return the sum of the gradients of one row, in order; most rows have one."""
    g = tl.load(G + tl.load(ORDER + first).to(tl.int64) * D + rd, mask=rd < D, other=0.0)
    for j0 in range(first + 1, end, UNROLL):
        for i in tl.static_range(UNROLL):
            j = j0 + i
            source = tl.load(ORDER + j, mask=j < end, other=0).to(tl.int64)
            g += tl.load(G + source * D + rd, mask=(rd < D) & (j + tl.zeros_like(rd) < end), other=0.0)
    return g


@triton.jit
def _adam(
    TABLE, MEAN, SQUARE, SEEN, RATES, IDS, ORDER, ENDS, VALUES, G, STEP, D, beta1, beta2, eps, log1, log2,
    LAZY: tl.constexpr, UNROLL: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Update a row by the program at the first of a run of equal ids; the others have nothing to do."""
    u = tl.program_id(0)
    row = tl.load(IDS + u).to(tl.int64)
    previous = tl.load(IDS + u - 1, mask=u > 0, other=-1)
    if row != previous:
        rd = tl.program_id(1) * BD + tl.arange(0, BD)
        place, inside = row * D + rd, rd < D
        m = tl.load(MEAN + place, mask=inside, other=0.0)
        v = tl.load(SQUARE + place, mask=inside, other=0.0)
        x = tl.load(VALUES + tl.load(ORDER + u).to(tl.int64) * D + rd, mask=inside, other=0.0)
        now = tl.load(STEP).to(tl.int32)
        g = _total(ORDER, G, u, tl.load(ENDS + u).to(tl.int32), D, rd, UNROLL)
        if LAZY:
            seen = tl.load(SEEN + row)
            missed = tl.where(seen < 0, 0, now - seen).to(tl.float32)
            m = m * tl.exp2(missed * log1)
            v = v * tl.exp2(missed * log2)
        rate, root = _rates(RATES, now, now + 1)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        x = x - rate * m / (tl.sqrt(v) * root + eps)
        tl.store(TABLE + place, _stochastic_round(x, TABLE, row, D, rd, now), mask=inside)
        tl.store(MEAN + place, m, mask=inside)
        tl.store(SQUARE + place, v, mask=inside)


@triton.jit
def _adagrad(TABLE, SQUARE, RATES, IDS, ORDER, ENDS, G, STEP, D, eps, ELEMENTS: tl.constexpr, BD: tl.constexpr):
    """Update a row, whole in registers. With ELEMENTS, every element has an accumulator, else every row."""
    u = tl.program_id(0)
    row = tl.load(IDS + u).to(tl.int64)
    previous = tl.load(IDS + u - 1, mask=u > 0, other=-1)
    if row != previous:
        now = tl.load(STEP).to(tl.int32)
        rate = tl.load(RATES + 2 * now)
        rd = tl.arange(0, BD)
        g = _total(ORDER, G, u, tl.load(ENDS + u).to(tl.int32), D, rd, 4)
        if ELEMENTS:
            total = tl.load(SQUARE + row * D + rd, mask=rd < D, other=0.0) + g * g
            tl.store(SQUARE + row * D + rd, total, mask=rd < D)
        else:
            total = tl.load(SQUARE + row) + tl.sum(g * g, axis=0) / D
            tl.store(SQUARE + row, total)
        x = tl.load(TABLE + row * D + rd, mask=rd < D, other=0.0).to(tl.float32)
        x = x - rate / (tl.sqrt(total) + eps) * g
        tl.store(TABLE + row * D + rd, _stochastic_round(x, TABLE, row, D, rd, now), mask=rd < D)


def _blocks(dim: int) -> tuple[int, dict[str, int]]:
    """Return how many programs share a row, and the launch options of each."""
    width = min(512, triton.next_power_of_2(dim))
    return triton.cdiv(dim, width), {"BD": width, "num_warps": max(1, width // 128)}


def _settings(adam: AdamState) -> tuple[tuple[Tensor, ...], tuple[float, ...]]:
    seen = adam.rates if adam.seen is None else adam.seen
    return (adam.table, adam.mean, adam.square, seen, adam.rates), (BETA1, BETA2, EPS, _LOG1, _LOG2)


def gather_rows(table: Tensor, ids: Tensor) -> Tensor:
    """Return what `reference.gather_rows` returns, in float32."""
    return gather_adam(AdamState(table, table, table, None, table), ids, IdGroups(ids, ids, ids), ids)


def gather_adam(adam: AdamState, ids: Tensor, groups: IdGroups, step: Tensor) -> Tensor:  # noqa: ARG001
    """Return what `reference.gather_adam` returns; only the result is written, so that repeated ids do not clash."""
    dim = adam.table.shape[1]
    out = torch.empty(len(ids), dim, device=ids.device)
    if out.numel():
        tensors, constants = _settings(adam)
        programs, options = _blocks(dim)
        lazy = adam.seen is not None
        _gather[(len(ids), programs)](
            *tensors, ids, step, out, dim, *constants, LAZY=lazy, MAX_CATCH_UP=MAX_CATCH_UP, **options
        )
    return out


def _mark_seen(adam: AdamState, ids: Tensor, step: Tensor) -> None:
    if adam.seen is not None:
        _mark[(triton.cdiv(len(ids), 128),)](adam.seen, ids, step, len(ids), BLOCK=128)


def flush_adam(adam: AdamState, step: Tensor) -> None:
    """Do what `reference.flush_adam` does."""
    if adam.seen is not None and adam.table.numel():
        tensors, constants = _settings(adam)
        programs, options = _blocks(adam.table.shape[1])
        _flush[(len(adam.table), programs)](
            *tensors, step, adam.table.shape[1], *constants, MAX_CATCH_UP=MAX_CATCH_UP, **options
        )
        torch.where(adam.seen < 0, adam.seen, step.int(), out=adam.seen)


def update_adam(adam: AdamState, groups: IdGroups, values: Tensor, gradient: Tensor, step: Tensor) -> None:
    """Do what `reference.update_adam` does."""
    num, dim = gradient.shape
    if num:
        tensors, constants = _settings(adam)
        programs, options = _blocks(dim)
        _adam[(num, programs)](
            *(*tensors, groups.ids, groups.order, groups.ends, values, gradient.contiguous(), step, dim, *constants),
            LAZY=adam.seen is not None,
            UNROLL=16 if num > max(len(adam.table), _MOST_BY_RANK) else 4,  # then some rows have thousands of gradients
            **options,
        )
        _mark_seen(adam, groups.ids, step)


def update_adagrad(
    table: Tensor, square: Tensor, rates: Tensor, groups: IdGroups, gradient: Tensor, step: Tensor
) -> None:
    """Do what `reference.update_adagrad` does."""
    num, dim = gradient.shape
    if num:
        width = triton.next_power_of_2(dim)
        _adagrad[(num,)](
            *(table, square, rates, groups.ids, groups.order, groups.ends),
            *(gradient.contiguous(), step, dim, ADAGRAD_EPS),
            ELEMENTS=square.dim() == 2,
            BD=width,
            num_warps=max(1, min(16, width // 256)),
        )
