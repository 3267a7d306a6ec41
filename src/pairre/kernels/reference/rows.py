"""Gather rows of an embedding table and update the ones that a step touched, in plain PyTorch.

E rows of a table, U row ids of a step (repeats are allowed, −1 means no row), D features. `step` is a tensor that holds
the number of the step, from 0, so that a step can be captured once as a CUDA graph and replayed.

`rates` [steps, 2] holds what Adam needs of each step: the learning rate with the correction of the mean's bias, and the
factor that corrects the bias of the root of the mean square.

Adam also moves a row without a gradient, because its mean decays and still pushes. With `seen` [E] that work is
deferred until the row is needed: `seen[i]` is the number of steps that row i has taken part in, −1 while it was never
touched. A row that is gathered or updated first catches up, with the very operations that it missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from pairre.support.randomness import uniform

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
ADAGRAD_EPS = 1e-10
MAX_CATCH_UP = 256  # after so many missed steps the mean is below 1e-11 of itself: only its decay is left


@dataclass(frozen=True)
class IdGroups:
    """Row ids in ascending order, so that gradients of equal ids can be added up."""

    ids: Tensor  # [U] int64, sorted
    order: Tensor  # [U] int64: the position of each before sorting
    ends: Tensor  # [U] int64: the end of the run of equal ids that each belongs to


@dataclass(frozen=True)
class AdamState:
    """A table with the state of Adam."""

    table: Tensor  # [E, D]
    mean: Tensor  # [E, D]
    square: Tensor  # [E, D]
    seen: Tensor | None  # [E] int32; None: rows without a gradient stay as they are
    rates: Tensor  # [steps, 2], in the precision of the moments


def group_ids(ids: Tensor) -> IdGroups:
    """Return row ids in ascending order; equal ids keep their order."""
    ordered, order = ids.sort(stable=True)
    return IdGroups(ordered, order, torch.searchsorted(ordered, ordered, right=True))


@cache
def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type that rows of a table are computed in: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def stochastic_round(x: Tensor, dtype: torch.dtype, rows: Tensor, step: Tensor) -> Tensor:
    """Return values of `rows` in the type that a table stores; half precision is rounded up or down at random.

    Rounded to nearest, an update smaller than half a unit in the last place would be lost every time.
    """
    if dtype == compute_dtype(dtype):
        return x
    digits, least = (10, -14) if dtype == torch.float16 else (7, -100)
    unit = (torch.frexp(x).exponent - 1).clamp(min=least) - digits
    counter = rows[:, None] * x.shape[1] + torch.arange(x.shape[1], device=x.device)
    return torch.ldexp((torch.ldexp(x, -unit) + uniform(int(step), counter)).floor(), unit).to(dtype)


def gather_rows(table: Tensor, ids: Tensor) -> Tensor:
    """Return rows [U, D] of a table; zeros for id −1."""
    return table[ids.clamp(min=0)].to(compute_dtype(table.dtype)) * (ids >= 0)[:, None]


def gather_adam(adam: AdamState, ids: Tensor, groups: IdGroups, step: Tensor) -> Tensor:  # noqa: ARG001
    """Return rows [U, D] as they are before `step`; the groups of the ids are for backends that want them."""
    rows = ids.clamp(min=0)
    return _catch_up(adam, rows, step)[0] * (ids >= 0)[:, None]


def _catch_up(adam: AdamState, rows: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, m, v = adam.table[rows].to(compute_dtype(adam.table.dtype)), adam.mean[rows], adam.square[rows]
    if adam.seen is None:
        return x, m, v
    now = int(step)
    seen = adam.seen[rows].long()
    seen = torch.where(seen < 0, now, seen)
    for j in range(MAX_CATCH_UP):
        missed = (seen + j < now)[:, None]
        if not bool(missed.any()):
            return x, m, v
        rate, root = adam.rates[(seen + j).clamp(max=len(adam.rates) - 1)].to(x.dtype).unsqueeze(-1).unbind(1)
        m = torch.where(missed, m * BETA1, m)
        v = torch.where(missed, v * BETA2, v)
        x = torch.where(missed, x - rate * m / (v.sqrt() * root + EPS), x)
    rest = (now - seen - MAX_CATCH_UP).clamp(min=0)[:, None].to(x.dtype)
    return x, m * BETA1**rest, v * BETA2**rest


def flush_adam(adam: AdamState, step: Tensor) -> None:
    """Have every row catch up with the updates that were deferred."""
    if adam.seen is not None:
        rows = torch.arange(len(adam.table), device=adam.table.device)
        x, m, v = _catch_up(adam, rows, step)
        behind = ((adam.seen >= 0) & (adam.seen < step))[:, None]
        adam.table.copy_(torch.where(behind, stochastic_round(x, adam.table.dtype, rows, step), adam.table))
        adam.mean.copy_(m)
        adam.square.copy_(v)
        adam.seen[adam.seen >= 0] = int(step)


def _add_gradients(groups: IdGroups, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return distinct ids, the first position of each, and the sums of their gradients."""
    rows, place, count = torch.unique_consecutive(groups.ids, return_inverse=True, return_counts=True)
    total = torch.zeros(len(rows), gradient.shape[1], dtype=gradient.dtype, device=gradient.device)
    total.index_add_(0, place, gradient[groups.order])
    first = groups.order[count.cumsum(0) - count]
    return rows[rows >= 0], first[rows >= 0], total[rows >= 0]


def update_adam(adam: AdamState, groups: IdGroups, values: Tensor, gradient: Tensor, step: Tensor) -> None:
    """Update rows by Adam (Kingma & Ba, 2015).

    `values` [U, D] are the rows as `gather_adam` returned them, `gradient` [U, D] is their gradient.
    """
    rows, first, total = _add_gradients(groups, gradient)
    _, m, v = _catch_up(adam, rows, step)
    rate, root = adam.rates[int(step)].tolist()
    m = m * BETA1 + total * (1 - BETA1)
    v = v * BETA2 + total * total * (1 - BETA2)
    adam.table[rows] = stochastic_round(
        values[first] - rate * m / (v.sqrt() * root + EPS), adam.table.dtype, rows, step
    )
    adam.mean[rows], adam.square[rows] = m, v
    if adam.seen is not None:
        adam.seen[rows] = int(step) + 1


def update_adagrad(
    table: Tensor, square: Tensor, rates: Tensor, groups: IdGroups, gradient: Tensor, step: Tensor
) -> None:
    """Update rows by Adagrad: `square` [E, D] sums the squares of every element's gradients over steps.

    With `square` [E], each row has one accumulator, the sum of the mean square of its gradients.
    """
    rows, _, total = _add_gradients(groups, gradient)
    each = total.square()
    square[rows] += each if square.dim() == 2 else each.mean(-1)
    s = square[rows] if square.dim() == 2 else square[rows, None]
    change = total * (rates[int(step), 0].to(s.dtype) / (s.sqrt() + ADAGRAD_EPS))
    table[rows] = stochastic_round(table[rows].to(s.dtype) - change, table.dtype, rows, step)
