"""Gather and update rows of a table on the CPU, as `reference/rows.py` defines it."""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pairre.kernels.reference import rows as reference
from pairre.kernels.reference.rows import ADAGRAD_EPS, BETA1, BETA2, EPS, MAX_CATCH_UP, AdamState, IdGroups
from pairre.kernels.reference.scores import HALF
from pairre.support.compiled import compiled
from pairre.support.threads import parallel_for

_kernel = compiled(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})


@_kernel
def _catch_up_kernel(table, mean, square, seen, rates, rows, now, constants, start, stop):
    """Apply to rows the updates of the steps that they missed."""
    beta1, beta2, eps = constants
    real = table.dtype.type
    for u in range(start, stop):
        i = rows[u]
        if i < 0 or seen[i] < 0:
            continue
        end = min(now, seen[i] + MAX_CATCH_UP)
        for j in range(seen[i], end):
            rate, root = real(rates[j, 0]), real(rates[j, 1])
            for k in range(table.shape[1]):
                m = beta1 * mean[i, k]
                v = beta2 * square[i, k]
                mean[i, k] = m
                square[i, k] = v
                table[i, k] -= rate * m / (np.sqrt(v) * root + eps)
        if end < now:
            mean[i] *= beta1 ** real(now - end)
            square[i] *= beta2 ** real(now - end)
        seen[i] = now


@_kernel
def _adam(table, mean, square, rows, starts, order, gradient, rate, root, constants, start, stop):
    beta1, beta2, eps = constants
    one = table.dtype.type(1)
    total = np.empty_like(table[0])
    for u in range(start, stop):
        i = rows[u]
        if i < 0:
            continue
        total[:] = gradient[order[starts[u]]]
        for j in range(starts[u] + 1, starts[u + 1]):
            total += gradient[order[j]]
        for k in range(table.shape[1]):
            g = total[k]
            m = beta1 * mean[i, k] + (one - beta1) * g
            v = beta2 * square[i, k] + (one - beta2) * g * g
            mean[i, k] = m
            square[i, k] = v
            table[i, k] -= rate * m / (np.sqrt(v) * root + eps)


@_kernel
def _adagrad(table, square, rows, starts, order, gradient, lr, eps, start, stop):
    total = np.empty_like(table[0])
    for u in range(start, stop):
        i = rows[u]
        if i < 0:
            continue
        total[:] = gradient[order[starts[u]]]
        for j in range(starts[u] + 1, starts[u + 1]):
            total += gradient[order[j]]
        mean = table.dtype.type(0)
        for k in range(table.shape[1]):
            mean += total[k] * total[k]
        square[i] += mean / table.shape[1]
        rate = lr / (np.sqrt(square[i]) + eps)
        for k in range(table.shape[1]):
            table[i, k] -= rate * total[k]


@_kernel
def _elementwise_adagrad(table, square, rows, starts, order, gradient, lr, eps, start, stop):
    total = np.empty_like(table[0])
    for u in range(start, stop):
        i = rows[u]
        if i < 0:
            continue
        total[:] = gradient[order[starts[u]]]
        for j in range(starts[u] + 1, starts[u + 1]):
            total += gradient[order[j]]
        for k in range(table.shape[1]):
            square[i, k] += total[k] * total[k]
            table[i, k] -= lr * total[k] / (np.sqrt(square[i, k]) + eps)


@dataclass(frozen=True)
class CpuIdGroups(IdGroups):
    """Groups of equal ids, with the distinct ids and where the run of each begins."""

    rows: np.ndarray  # [distinct ids]
    starts: np.ndarray  # [distinct ids + 1]


def group_ids(ids: Tensor) -> IdGroups:
    """Return what `reference.group_ids` returns."""
    ordered, order = ids.sort(stable=True)
    values = ordered.numpy()
    starts = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    ends = torch.searchsorted(ordered, ordered, right=True)
    return CpuIdGroups(ordered, order, ends, values[starts], np.append(starts, len(values)))


def _catch_up(adam: AdamState, rows: np.ndarray, step: Tensor) -> None:
    """Apply to rows, in place, the updates that were deferred."""
    if adam.seen is not None:
        real = adam.table.numpy().dtype.type
        constants = (real(BETA1), real(BETA2), real(EPS))
        arrays = [t.numpy() for t in (adam.table, adam.mean, adam.square, adam.seen, adam.rates)]
        parallel_for(_catch_up_kernel, len(rows), *arrays, rows, int(step), constants)


# numba does not know half precision, so that tables stored in it are left to the reference.


def flush_adam(adam: AdamState, step: Tensor) -> None:
    """Do what `reference.flush_adam` does."""
    if adam.table.dtype in HALF:
        reference.flush_adam(adam, step)
    else:
        _catch_up(adam, np.arange(len(adam.table)), step)


def gather_adam(adam: AdamState, ids: Tensor, groups: IdGroups, step: Tensor) -> Tensor:
    """Return what `reference.gather_adam` returns; the rows that are gathered catch up for good."""
    if adam.table.dtype in HALF:
        return reference.gather_adam(adam, ids, groups, step)
    assert isinstance(groups, CpuIdGroups)
    _catch_up(adam, groups.rows, step)
    return adam.table[ids.clamp(min=0)] * (ids >= 0)[:, None]


def update_adam(adam: AdamState, groups: IdGroups, values: Tensor, gradient: Tensor, step: Tensor) -> None:
    """Do what `reference.update_adam` does."""
    if adam.table.dtype in HALF:
        reference.update_adam(adam, groups, values, gradient, step)
        return
    assert isinstance(groups, CpuIdGroups)
    rows, starts = groups.rows, groups.starts
    real = adam.table.numpy().dtype.type
    rate, root = adam.rates[int(step)].tolist()
    arrays = [t.numpy() for t in (adam.table, adam.mean, adam.square)]
    sources = (rows, starts, groups.order.numpy(), gradient.contiguous().numpy())
    constants = (real(BETA1), real(BETA2), real(EPS))
    parallel_for(_adam, len(rows), *arrays, *sources, real(rate), real(root), constants)
    if adam.seen is not None:
        adam.seen.numpy()[rows[rows >= 0]] = int(step) + 1


def update_adagrad(
    table: Tensor, square: Tensor, rates: Tensor, groups: IdGroups, gradient: Tensor, step: Tensor
) -> None:
    """Do what `reference.update_adagrad` does."""
    if table.dtype in HALF:
        reference.update_adagrad(table, square, rates, groups, gradient, step)
        return
    assert isinstance(groups, CpuIdGroups)
    rows, starts = groups.rows, groups.starts
    real = table.numpy().dtype.type
    arrays = (table.numpy(), square.numpy(), rows, starts, groups.order.numpy(), gradient.contiguous().numpy())
    kernel = _elementwise_adagrad if square.dim() == 2 else _adagrad
    parallel_for(kernel, len(rows), *arrays, real(rates[int(step), 0]), real(ADAGRAD_EPS))
