"""Multiply vectors by matrices that several of them share, in plain PyTorch.

B vectors, G matrices of D × D.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def grouped_product(matrices: Tensor, number: Tensor, vectors: Tensor) -> Tensor:
    """Return matrices[number[b]] times vectors[b], [B, D], from matrices [G, D, D], numbers [B] and vectors [B, D]."""
    own = F.embedding(number, matrices.flatten(1)).view(len(vectors), *matrices.shape[1:])
    return (own @ vectors[..., None]).squeeze(-1)
