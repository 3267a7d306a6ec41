"""How Triton score kernels are launched: tiles, grids and tables stored by feature."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

LAUNCH = {"num_warps": 4, "enable_fp_fusion": True}  # q − w·c is one instruction, today and in later versions


def power(number: int, most: int) -> int:
    """Return the least power of two that is not below a number, at most `most`."""
    return min(most, 1 << max(number - 1, 0).bit_length())


def tiles(num_q: int, num_c: int, metric: str) -> tuple[int, int, tuple[int, int]]:
    """Return the queries and candidates of a tile of scores by a metric or formula, and the grid of tiles."""
    most = 128 if metric in ("likelihood", "divergence") else 256  # these need three registers for a score
    tile_m, tile_n = power(num_q, 16), max(32, power(num_c, most))
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


def by_feature(first: Tensor, *others: Tensor | None) -> list[Tensor]:
    """Return tables as [D, rows], so that a tile reads neighbours; the first stands in for one that is absent."""
    turned = first.t().contiguous()
    return [turned, *(turned if t is None else t.t().contiguous() for t in others)]
