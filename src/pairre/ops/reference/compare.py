"""Plain PyTorch: the definition of correct, and the fallback on devices that have no kernel of their own.

B queries, K candidates of each query, N candidate rows, D features, U touched rows.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

_BUDGET = 1 << 25  # elements of one [queries, candidates, features] temporary


def weighted_l1(query: Tensor, scale: Tensor, candidates: Tensor, ids: Tensor | None = None) -> Tensor:
    """score[b, k] = −Σ_d |query[b, d] − scale[b, d] · candidate[d]|.

    query, scale: [B, D]; candidates: [N, D]. Without `ids` every query meets all N rows, [B, N]; with `ids` [B, K]
    query b meets rows ids[b]. Queries go in chunks, recomputed for the gradient, so that memory stays bounded.
    """

    def chunk(q: Tensor, w: Tensor, c: Tensor, i: Tensor | None) -> Tensor:
        rows = c[None] if i is None else c[i]
        return -(q[:, None] - w[:, None] * rows).abs().sum(-1)

    width = (len(candidates) if ids is None else ids.shape[1]) * query.shape[1]
    size = max(1, _BUDGET // max(width, 1))
    if len(query) <= size:
        return chunk(query, scale, candidates, ids)
    parts = []
    for start in range(0, len(query), size):
        piece = slice(start, start + size)
        own = None if ids is None else ids[piece]
        parts.append(checkpoint(chunk, query[piece], scale[piece], candidates, own, use_reentrant=False))
    return torch.cat(parts)
