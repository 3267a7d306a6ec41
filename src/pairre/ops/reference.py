"""Plain PyTorch: the definition of correct, and the fallback on devices that have no kernel of their own.

B queries, K candidates of each query, N candidate rows, D features, U touched rows.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class AdamStep:
    """What a step of Adam depends on beside the tensors."""

    lr: float
    number: int  # from 1
    dense: bool  # rows that are not given have a gradient of 0 and still move by their mean; else they stay
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    @property
    def rate(self) -> float:
        """The learning rate with the correction of the mean's bias."""
        return self.lr / (1 - self.beta1**self.number)

    @property
    def root(self) -> float:
        """What corrects the bias of the square root of the mean square."""
        return float((1 - self.beta2**self.number) ** -0.5)


def adam_rows(
    table: Tensor, mean: Tensor, square: Tensor, ids: Tensor | None, gradient: Tensor, step: AdamStep
) -> None:
    """One step of Adam; `gradient` [U, D] is that of rows `ids` of the table (None: of all)."""
    if step.dense and ids is not None:
        gradient = torch.zeros_like(table).index_copy_(0, ids, gradient)
        ids = None
    m = mean if ids is None else mean[ids]
    v = square if ids is None else square[ids]
    m = m * step.beta1 + gradient * (1 - step.beta1)
    v = v * step.beta2 + gradient * gradient * (1 - step.beta2)
    change = step.rate * m / (v.sqrt() * step.root + step.eps)
    if ids is None:
        mean.copy_(m)
        square.copy_(v)
        table.sub_(change)
    else:
        mean[ids] = m
        square[ids] = v
        table[ids] -= change


def adagrad_rows(table: Tensor, square: Tensor, ids: Tensor | None, gradient: Tensor, *, lr: float, eps: float) -> None:
    """One step of row-wise Adagrad: one accumulator a row, the mean square of its gradients summed over steps."""
    s = (square if ids is None else square[ids]) + gradient.square().mean(-1)
    change = gradient * (lr / (s.sqrt() + eps))[:, None]
    if ids is None:
        square.copy_(s)
        table.sub_(change)
    else:
        square[ids] = s
        table[ids] -= change
