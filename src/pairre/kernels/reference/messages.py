"""Sum over the links of an entity what matrices of blocks make of its neighbours, in plain PyTorch.

n entities, L links of each, T matrices, D features in blocks of S.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def block_messages(table: Tensor, near: Tensor, index: Tensor, share: Tensor) -> Tensor:
    """Return Σ_l share[n, l] V near[n, l], [n, D], with the block-diagonal V in row index[n, l] of a table [T, D · S].

    Blocks are stored after each other, by row. near: [n, L, D]; index, share: [n, L], without a gradient.
    """
    size = table.shape[1] // near.shape[2]
    blocks = F.embedding(index, table).view(*index.shape, -1, size, size)
    messages = torch.einsum("nkgij,nkgj->nkgi", blocks, near.reshape(*index.shape, -1, size)).flatten(-2)
    return (messages * share[..., None]).sum(1)
