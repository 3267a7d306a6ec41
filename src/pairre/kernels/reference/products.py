"""Multiply vectors by matrices that several of them share, in plain PyTorch.

B vectors, G matrices of D × D; N rows, blocks of S × S.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pairre.kernels.reference.scores import stable_product


def grouped_product(matrices: Tensor, number: Tensor, vectors: Tensor) -> Tensor:
    """Return matrices[number[b]] times vectors[b], [B, D], from matrices [G, D, D], numbers [B] and vectors [B, D]."""
    own = F.embedding(number, matrices.flatten(1)).view(len(vectors), *matrices.shape[1:])
    return (own @ vectors[..., None]).squeeze(-1)


def block_product(rows: Tensor, blocks: Tensor) -> Tensor:
    """Return rows [..., N, D] times the block-diagonal matrix of blocks [..., D / S, S, S].

    Without a gradient, no bit of a row depends on the other rows.
    """
    parts = rows.reshape(*rows.shape[:-1], *blocks.shape[-3:-1]).transpose(-3, -2)
    return stable_product(parts, blocks).transpose(-3, -2).flatten(-2)
