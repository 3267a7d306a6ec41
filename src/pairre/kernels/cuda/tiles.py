"""How Triton score kernels are launched: tiles, grids and tables stored by feature."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

LAUNCH = {"num_warps": 4, "enable_fp_fusion": True}  # q − w·c is one instruction, today and in later versions
UNROLL = 4  # terms of a sum at a time, where a formula does not say


def num_terms(metric: str, table: Tensor) -> int:
    """Return of how many terms a score by a metric or formula is the sum: of two features each, or of one."""
    return table.shape[1] // 2 if metric in ("modulus", "likelihood", "divergence") else table.shape[1]


def power(number: int, most: int) -> int:
    """Return the least power of two that is not below a number, at most `most`."""
    return min(most, 1 << max(number - 1, 0).bit_length())


def tiles(num_q: int, num_c: int, metric: str) -> tuple[int, int, tuple[int, int]]:
    """Return the queries and candidates of a tile of scores by a metric or formula, and the grid of tiles.

    A thread then has one candidate and all queries of the tile, which it reads as vectors. Where it has two, Triton
    hands candidates from thread to thread by way of shared memory, which all threads wait for at every feature.
    """
    most = 8 if metric in ("likelihood", "divergence") else 16  # these need more registers for a score
    tile_m, tile_n = power(num_q, most), max(32, power(num_c, 128))
    return tile_m, tile_n, (triton.cdiv(num_c, tile_n), triton.cdiv(num_q, tile_m))


def needs_int64(*sizes: int) -> bool:
    """Return whether offsets into tables of these sizes exceed 32 bits."""
    return max(sizes) >= 1 << 31


def of_formula(kernel: str, query: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return query and scale as kernels take them: of a formula, what depends on the query alone is computed here."""
    if kernel == "likelihood" and scale is not None:
        mean, variance = query.chunk(2, 1)
        return torch.cat([mean, variance + scale], 1), None
    return query, 1 / scale if kernel == "divergence" and scale is not None else scale


def by_feature(tile: int, query: Tensor, scale: Tensor | None, *candidates: Tensor | None) -> list[Tensor]:
    """Return tables as [D, rows], so that a tile reads neighbours; the first stands in for one that is absent.

    Queries and scales get rows of zeros, so that their last tile is whole.
    """
    missing = -len(query) % tile
    first = _turned(query, missing)
    others = [None if scale is None else _turned(scale, missing), *(t if t is None else _turned(t) for t in candidates)]
    return [first, *(first if t is None else t for t in others)]


def _turned(table: Tensor, missing: int = 0) -> Tensor:
    """Return a table as [D, rows], with as many rows of zeros as are missing."""
    return (F.pad(table, (0, 0, 0, missing)) if missing else table).t().contiguous()
