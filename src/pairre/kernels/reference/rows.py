"""Rows of a table: read them, and move the ones that a step touched.

E rows of a table, U row ids of a step (repeats allowed, −1 is nobody), D features. `clock` is a tensor with the number
of the step, from 0, so that a step can be recorded once and replayed.

`rates` [steps, 2] holds what Adam needs of each step: the learning rate with the correction of the mean's bias, and
what corrects the bias of the root of the mean square.

Adam moves a row without a gradient, too: its mean decays and still pushes. With `seen` [E] that is put off until the
row is needed: seen[i] steps are in row i, −1 while it was never touched. A row that is read or moved first catches up,
with the very operations that it missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pairre.support.randomness import uniform

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
LONGEST = 256  # after so many missed steps the mean is below 1e-11 of itself: what is left only decays


@dataclass(frozen=True)
class Groups:
    """Row ids in order, where each stood, and where the run of ids equal to it ends; [U] int64 each."""

    ids: Tensor
    order: Tensor
    ends: Tensor


@dataclass(frozen=True)
class AdamTable:
    """A table with Adam's state."""

    table: Tensor  # [E, D]
    mean: Tensor  # [E, D]
    square: Tensor  # [E, D]
    seen: Tensor | None  # [E] int32; None: only rows that are touched move
    rates: Tensor  # [steps, 2], in the precision of the moments


def group(ids: Tensor) -> Groups:
    """Sort row ids; equal ones keep their order."""
    ordered, order = ids.sort(stable=True)
    return Groups(ordered, order, torch.searchsorted(ordered, ordered, right=True))


def wide(dtype: torch.dtype) -> torch.dtype:
    """What a table's rows are computed in: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def narrow(x: Tensor, dtype: torch.dtype, rows: Tensor, clock: Tensor) -> Tensor:
    """Values of `rows` as a table stores them. Half precision is rounded up or down at random, right on average.

    Otherwise a step smaller than half a unit in the last place would be lost every time.
    """
    if dtype == wide(dtype):
        return x
    digits, least = (10, -14) if dtype == torch.float16 else (7, -100)
    unit = (torch.frexp(x).exponent - 1).clamp(min=least) - digits
    counter = rows[:, None] * x.shape[1] + torch.arange(x.shape[1], device=x.device)
    return torch.ldexp((torch.ldexp(x, -unit) + uniform(int(clock), counter)).floor(), unit).to(dtype)


def read_rows(table: Tensor, ids: Tensor) -> Tensor:
    """Rows [U, D] of a table; zeros for −1."""
    return table[ids.clamp(min=0)].to(wide(table.dtype)) * (ids >= 0)[:, None]


def read_adam(adam: AdamTable, ids: Tensor, _: Groups, clock: Tensor) -> Tensor:
    """Rows [U, D] as they are before step `clock`; third come the groups of the ids, for backends that want them."""
    rows = ids.clamp(min=0)
    return _caught_up(adam, rows, clock)[0] * (ids >= 0)[:, None]


def _caught_up(adam: AdamTable, rows: Tensor, clock: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, m, v = adam.table[rows].to(wide(adam.table.dtype)), adam.mean[rows], adam.square[rows]
    if adam.seen is None:
        return x, m, v
    now = int(clock)
    seen = adam.seen[rows].long()
    seen = torch.where(seen < 0, now, seen)
    for j in range(LONGEST):
        missed = (seen + j < now)[:, None]
        if not bool(missed.any()):
            return x, m, v
        rate, root = adam.rates[(seen + j).clamp(max=len(adam.rates) - 1)].to(x.dtype).unsqueeze(-1).unbind(1)
        m = torch.where(missed, m * BETA1, m)
        v = torch.where(missed, v * BETA2, v)
        x = torch.where(missed, x - rate * m / (v.sqrt() * root + EPS), x)
    rest = (now - seen - LONGEST).clamp(min=0)[:, None].to(x.dtype)
    return x, m * BETA1**rest, v * BETA2**rest


def settle(adam: AdamTable, clock: Tensor) -> None:
    """Have every row catch up."""
    if adam.seen is not None:
        rows = torch.arange(len(adam.table), device=adam.table.device)
        x, m, v = _caught_up(adam, rows, clock)
        behind = ((adam.seen >= 0) & (adam.seen < clock))[:, None]
        adam.table.copy_(torch.where(behind, narrow(x, adam.table.dtype, rows, clock), adam.table))
        adam.mean.copy_(m)
        adam.square.copy_(v)
        adam.seen[adam.seen >= 0] = int(clock)


def _total(groups: Groups, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct ids, where each first stood, and the sums of their gradients."""
    rows, place, count = torch.unique_consecutive(groups.ids, return_inverse=True, return_counts=True)
    total = torch.zeros(len(rows), gradient.shape[1], dtype=gradient.dtype, device=gradient.device)
    total.index_add_(0, place, gradient[groups.order])
    first = groups.order[count.cumsum(0) - count]
    return rows[rows >= 0], first[rows >= 0], total[rows >= 0]


def adam_rows(adam: AdamTable, groups: Groups, values: Tensor, gradient: Tensor, clock: Tensor) -> None:
    """Step `clock` of Adam (Kingma & Ba, 2015).

    `values` [U, D] are the rows as `read_adam` gave them, `gradient` [U, D] is theirs.
    """
    rows, first, total = _total(groups, gradient)
    _, m, v = _caught_up(adam, rows, clock)
    rate, root = adam.rates[int(clock)].tolist()
    m = m * BETA1 + total * (1 - BETA1)
    v = v * BETA2 + total * total * (1 - BETA2)
    adam.table[rows] = narrow(values[first] - rate * m / (v.sqrt() * root + EPS), adam.table.dtype, rows, clock)
    adam.mean[rows], adam.square[rows] = m, v
    if adam.seen is not None:
        adam.seen[rows] = int(clock) + 1


def adagrad_rows(table: Tensor, square: Tensor, rates: Tensor, groups: Groups, gradient: Tensor, clock: Tensor) -> None:
    """One step of row-wise Adagrad: one accumulator a row, the mean square of its gradients summed over steps."""
    rows, _, total = _total(groups, gradient)
    s = square[rows] + total.square().mean(-1)
    square[rows] = s
    change = total * (rates[int(clock), 0].to(s.dtype) / (s.sqrt() + 1e-10))[:, None]
    table[rows] = narrow(table[rows].to(s.dtype) - change, table.dtype, rows, clock)
