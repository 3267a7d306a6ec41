"""Scores → a number: every loss has one signature, and the margin belongs here, not to the model.

B positives, K negatives of each. `positive` [B] and `negative` [B, K] are scores; `known` [B, K] marks negatives that
are true after all and must not count; `weight` [B] sums to 1.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre import kernels
from pairre.kernels.reference.loss import NEVER
from pairre.settings.recipe import LossRecipe


class Loss(Protocol):
    """What every loss takes."""

    def __call__(
        self, positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, recipe: LossRecipe
    ) -> Tensor:
        """The loss."""


def self_adversarial(
    positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, recipe: LossRecipe
) -> Tensor:
    """½ [−log σ(γ + s) − Σ_i p_i log σ(−γ − s_i)], p = softmax(α s_i) without gradient (Sun et al., ICLR 2019)."""
    kernels = kernels.backend(negative.device.type)
    loss: Tensor = kernels.self_adversarial(positive, negative, known, weight, recipe.margin, recipe.temperature)
    return loss


def cross_entropy(
    positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, recipe: LossRecipe
) -> Tensor:
    """−log of the positive's share in a softmax over itself and its negatives, of scores times α."""
    positive, negative = recipe.temperature * positive, recipe.temperature * negative
    if known is not None:
        negative = negative.masked_fill(known, NEVER)
    total = torch.logaddexp(positive, negative.logsumexp(dim=1))
    return (weight * (total - positive)).sum()


def margin_ranking(
    positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, recipe: LossRecipe
) -> Tensor:
    """Mean over the negatives of max(0, γ − s + s_i) (Bordes et al., 2013)."""
    return (weight * _mean(F.relu(recipe.margin - positive[:, None] + negative), known)).sum()


def logistic(positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, recipe: LossRecipe) -> Tensor:
    """−log σ(γ + s) − mean_i log σ(−γ − s_i)."""
    false = _mean(F.softplus(recipe.margin + negative), known)
    return (weight * (F.softplus(-recipe.margin - positive) + false)).sum()


def k_vs_all(
    positive: Tensor,  # noqa: ARG001
    negative: Tensor,
    known: Tensor | None,
    weight: Tensor,
    recipe: LossRecipe,
) -> Tensor:
    """Binary cross-entropy over all entities, known ones labelled 1 (Dettmers et al., AAAI 2018), labels smoothed.

    y = (1 − ε) label + ε / E, logits γ + s. A positive stands for its whole row of labels; the sampler draws one for
    each pair that is asked about, however many answers it has.
    """
    assert known is not None  # the recipe sees to it
    labels = known * (1 - recipe.smoothing) + recipe.smoothing / known.shape[1]
    each = F.binary_cross_entropy_with_logits(recipe.margin + negative, labels, reduction="none").mean(1)
    return (weight * each).sum()


def _mean(values: Tensor, known: Tensor | None) -> Tensor:
    """Mean over the negatives that count."""
    if known is None:
        return values.mean(1)
    return values.masked_fill(known, 0).sum(1) / (~known).sum(1).clamp(min=1)


LOSSES: dict[str, Loss] = {
    "self-adversarial": self_adversarial,
    "cross-entropy": cross_entropy,
    "margin": margin_ranking,
    "logistic": logistic,
    "k-vs-all": k_vs_all,
}
