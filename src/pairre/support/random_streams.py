"""The random numbers of `randomness.py` for one counter at a time, compiled for the CPU, without loading torch."""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import hashlib
import math

import numba
import numpy as np

GOLDEN, MIX1, MIX2 = -7046029254386353131, -4658895280553007687, -7723592293110705685  # as signed 64-bit integers
ROUNDS = 4  # of a permutation
_GOLDEN, _MIX1, _MIX2 = (np.uint64(constant % 2**64) for constant in (GOLDEN, MIX1, MIX2))


def key(seed: int, *purpose: str | int) -> int:
    """Return the stream of a purpose, as a signed 64-bit integer."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), signed=True)


def grid(size: int) -> tuple[int, int]:
    """Return rows and columns of the smallest nearly square grid that holds `size` places."""
    rows = max(1, math.isqrt(size))
    return rows, -(-size // rows)


@numba.njit(nogil=True)
def random_bits(stream, counter):
    """Return `randomness.bits` as an unsigned integer."""
    x = np.uint64(stream) + np.uint64(counter + 1) * _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _MIX1
    x = (x ^ (x >> np.uint64(27))) * _MIX2
    return x ^ (x >> np.uint64(31))


@numba.njit(nogil=True)
def random_below(stream, counter, below):
    """Return `randomness.integers`."""
    x, limit, half = random_bits(stream, counter), np.uint64(below), np.uint64(32)
    return np.int64(((x >> half) * limit + ((x & np.uint64(0xFFFFFFFF)) * limit >> half)) >> half)


@numba.njit(nogil=True)
def permuted(stream, position, size, rows, columns):
    """Return `randomness.permute` of one position; `rows` and `columns` are those of `grid(size)`."""
    place = np.int64(position)
    while True:
        row, column = place // columns, place % columns
        for i in range(ROUNDS):
            row += random_below(stream, 2 * i + 2 * ROUNDS * column, rows)
            if row >= rows:
                row -= rows
            column += random_below(stream, 2 * i + 1 + 2 * ROUNDS * row, columns)
            if column >= columns:
                column -= columns
        place = row * columns + column
        if place < size:
            return place
