"""Sum over the links of an entity what matrices of blocks make of its neighbours, in plain PyTorch.

n entities, L links of each, T matrices, D features in blocks of S.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.kernels.reference.scores import MAX_ELEMENTS


def block_messages(table: Tensor, near: Tensor, index: Tensor, share: Tensor) -> Tensor:
    """Return Σ_l share[n, l] V near[n, l], [n, D], with the block-diagonal V in row index[n, l] of a table [T, D · S].

    Blocks are stored after each other, by row. near: [n, L, D]; index, share: [n, L], without a gradient.
    """
    (num, num_links, dim), size = near.shape, table.shape[1] // near.shape[2]
    total = near.new_zeros(num, dim)
    at_once = max(1, MAX_ELEMENTS // 4 // max(1, num * table.shape[1]))  # links, in memory that is quick
    for first in range(0, num_links, at_once):
        rows, x, weight = (t[:, first : first + at_once] for t in (index, near, share))
        blocks = F.embedding(rows, table).view(*rows.shape, -1, size, size)
        messages = torch.einsum("nkgij,nkgj->nkgi", blocks, x.reshape(*rows.shape, -1, size)).flatten(-2)
        total = total + (messages * weight[..., None]).sum(1)
    return total
