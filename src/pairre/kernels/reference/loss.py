"""The loss of the paper and the normalisation of rows, where a backend may have one kernel for all of it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

NEVER = -1e30  # a score no negative reaches; finite, so that a row of nothing but known triples stays finite


def unit_rows(rows: Tensor) -> Tensor:
    """Rows divided by their Euclidean length."""
    return F.normalize(rows, dim=-1)


def self_adversarial(
    positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, margin: float, temperature: float
) -> Tensor:
    """½ Σ weight [−log σ(γ + s) − Σ_i p_i log σ(−γ − s_i)], p = softmax(α s_i) without gradient and without known."""
    with torch.no_grad():
        logits = temperature * negative
        share = (logits if known is None else logits.masked_fill_(known, NEVER)).softmax(dim=1)
        if known is not None:
            share.masked_fill_(known, 0)
    true = F.softplus(-margin - positive)
    false = (share * F.softplus(margin + negative)).sum(1)
    return (weight * (true + false)).sum() / 2
