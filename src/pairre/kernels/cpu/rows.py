"""Rows of a table on the CPU, as `reference/rows.py` defines them."""

# Kernels carry no types: numba and Triton find them out.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import numba
import numpy as np
from torch import Tensor

from pairre.kernels.reference import rows as reference
from pairre.kernels.reference.rows import BETA1, BETA2, EPS, LONGEST, AdamTable, Groups, group, read_rows, wide
from pairre.support.threads import over_rows

__all__ = ["adagrad_rows", "adam_rows", "group", "read_adam", "read_rows", "settle"]
_kernel = numba.njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"}, cache=True)


@_kernel
def _settle(table, mean, square, seen, rates, rows, now, constants, start, stop):
    """Have rows catch up with the steps they missed."""
    beta1, beta2, eps = constants
    real = table.dtype.type
    for u in range(start, stop):
        i = rows[u]
        if i < 0 or seen[i] < 0:
            continue
        end = min(now, seen[i] + LONGEST)
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


def _starts(groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """Distinct ids, and where each begins in the order, with the end."""
    ids = groups.ids.numpy()
    starts = np.flatnonzero(np.diff(ids, prepend=ids[:1] - 1))
    return ids[starts], np.append(starts, len(ids))


def _settled(adam: AdamTable, rows: np.ndarray, clock: Tensor) -> None:
    if adam.seen is not None:
        real = adam.table.numpy().dtype.type
        constants = (real(BETA1), real(BETA2), real(EPS))
        arrays = [t.numpy() for t in (adam.table, adam.mean, adam.square, adam.seen, adam.rates)]
        over_rows(_settle, len(rows), *arrays, rows, int(clock), constants)


def _half(table: Tensor) -> bool:
    """Half precision is left to the reference: numba does not know it."""
    return table.dtype != wide(table.dtype)


def settle(adam: AdamTable, clock: Tensor) -> None:
    """As `reference.settle`."""
    if _half(adam.table):
        reference.settle(adam, clock)
    else:
        _settled(adam, np.arange(len(adam.table)), clock)


def read_adam(adam: AdamTable, ids: Tensor, groups: Groups, clock: Tensor) -> Tensor:
    """As `reference.read_adam`; the rows that are read catch up for good."""
    if _half(adam.table):
        return reference.read_adam(adam, ids, groups, clock)
    if adam.seen is not None:
        _settled(adam, _starts(groups)[0], clock)
    return read_rows(adam.table, ids)


def adam_rows(adam: AdamTable, groups: Groups, values: Tensor, gradient: Tensor, clock: Tensor) -> None:
    """As `reference.adam_rows`."""
    if _half(adam.table):
        reference.adam_rows(adam, groups, values, gradient, clock)
        return
    rows, starts = _starts(groups)
    _settled(adam, rows, clock)
    real = adam.table.numpy().dtype.type
    rate, root = adam.rates[int(clock)].tolist()
    arrays = [t.numpy() for t in (adam.table, adam.mean, adam.square)]
    sources = (rows, starts, groups.order.numpy(), gradient.contiguous().numpy())
    constants = (real(BETA1), real(BETA2), real(EPS))
    over_rows(_adam, len(rows), *arrays, *sources, real(rate), real(root), constants)
    if adam.seen is not None:
        adam.seen.numpy()[rows[rows >= 0]] = int(clock) + 1


def adagrad_rows(table: Tensor, square: Tensor, rates: Tensor, groups: Groups, gradient: Tensor, clock: Tensor) -> None:
    """As `reference.adagrad_rows`."""
    if _half(table):
        reference.adagrad_rows(table, square, rates, groups, gradient, clock)
        return
    rows, starts = _starts(groups)
    real = table.numpy().dtype.type
    arrays = (table.numpy(), square.numpy(), rows, starts, groups.order.numpy(), gradient.contiguous().numpy())
    over_rows(_adagrad, len(rows), *arrays, real(rates[int(clock), 0]), real(1e-10))
