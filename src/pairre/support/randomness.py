"""Random numbers as a function of (seed, purpose, counter).

Nothing has to be stored, a resumed run draws what an unbroken one would have drawn, and every device draws the same:
`bits` is SplitMix64 (Steele et al., 2014) with random access, in plain integer arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pairre.support.random_streams import GOLDEN, MIX1, MIX2, ROUNDS, grid, key

__all__ = ["GOLDEN", "MIX1", "MIX2", "ROUNDS", "bits", "generator", "grid", "integers", "key", "permute", "uniform"]


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Return PyTorch's own generator on the CPU, for what happens once."""
    return torch.Generator().manual_seed(key(seed, *purpose) & 0xFFFFFFFF)


def _shift(x: Tensor, by: int) -> Tensor:
    """Shift bits to the right, zeros coming in."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def bits(stream: int | Tensor, counter: Tensor) -> Tensor:
    """64 random bits for each int64 counter."""
    x = stream + (counter + 1) * GOLDEN
    x = (x ^ _shift(x, 30)) * MIX1
    x = (x ^ _shift(x, 27)) * MIX2
    return x ^ _shift(x, 31)


def integers(stream: int | Tensor, counter: Tensor, below: int) -> Tensor:
    """Return a number in [0, below) for each counter, below < 2³¹: the upper half of a product with 64 random bits."""
    x = bits(stream, counter)
    return (_shift(x, 32) * below + ((x & 0xFFFFFFFF) * below >> 32)) >> 32


def uniform(stream: int | Tensor, counter: Tensor) -> Tensor:
    """Return a float32 in [0, 1) for each counter, a multiple of 2⁻²⁴."""
    return _shift(bits(stream, counter), 40).float() * 2**-24


def permute(stream: int | Tensor, position: Tensor, size: int) -> Tensor:
    """Return where each position in [0, size) goes in a random order of them all: a bijection that is stored nowhere.

    Positions are places (row, column) of a grid; each round shifts rows by a random function of the column, then
    columns by one of the row. Whoever lands on a place past the end is shifted again.
    """
    rows, columns = grid(size)

    def shift(place: Tensor) -> Tensor:
        row, column = place // columns, place % columns
        for i in range(ROUNDS):
            row = row + integers(stream, 2 * i + 2 * ROUNDS * column, rows)
            row = row - rows * (row >= rows)
            column = column + integers(stream, 2 * i + 1 + 2 * ROUNDS * row, columns)
            column = column - columns * (column >= columns)
        return row * columns + column

    place = shift(position)
    while bool((outside := place >= size).any()):
        place = torch.where(outside, shift(place), place)
    return place
