"""How Triton score kernels are launched: tiles, grids and tables stored by feature."""

from __future__ import annotations

import triton
from torch import Tensor

LAUNCH = {"num_warps": 4, "enable_fp_fusion": True}  # q − w·c is one instruction, today and in later versions


def power(number: int, most: int) -> int:
    """Return the least power of two that is not below a number, at most `most`."""
    return min(most, 1 << max(number - 1, 0).bit_length())


def tiles(num_q: int, num_c: int) -> tuple[int, int, tuple[int, int]]:
    """Return the queries and candidates of a tile of scores, and the grid of tiles."""
    tile_m, tile_n = power(num_q, 16), max(32, power(num_c, 256))
    return tile_m, tile_n, (triton.cdiv(num_c, tile_n), triton.cdiv(num_q, tile_m))


def needs_int64(*sizes: int) -> bool:
    """Return whether offsets into tables of these sizes exceed 32 bits."""
    return max(sizes) >= 1 << 31


def by_feature(first: Tensor, *others: Tensor | None) -> list[Tensor]:
    """Return tables as [D, rows], so that a tile reads neighbours; the first stands in for one that is absent."""
    turned = first.t().contiguous()
    return [turned, *(turned if t is None else t.t().contiguous() for t in others)]
