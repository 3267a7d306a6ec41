"""Losses over the scores of a batch, and the terms that a step adds up.

B positives, K negatives of each. `positive` [B] and `negative` [B, K] are scores; `known` [B, K] marks negatives that
are true triples: a loss masks them, or takes them as labels (k-vs-all); `weight` [B] sums to 1. The margin belongs to
the loss, not to the model.

A new loss is a function of this signature with the decorator `loss`, in this file or in a plug-in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.kernels import backend
from pairre.models import EntityRows, Model, Shared
from pairre.settings import registry
from pairre.settings.recipe import LossRecipe
from pairre.support.errors import RecipeError, suggest
from pairre.training.sampling import STEP_SIDES, Batch, Targets

MASKED = -1e30  # the score of a masked negative; finite, so that a row of nothing but known triples stays finite


class Loss(Protocol):
    """The signature of every loss."""

    def __call__(
        self, positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, recipe: LossRecipe
    ) -> Tensor:
        """Return the loss of a batch, a scalar."""


LOSSES: dict[str, Loss] = {}
SEPARABLE: set[str] = set()  # names of losses that add up something of the positives and something of the negatives


def loss(name: str, help: str, *, separable: bool = False) -> Callable[[Loss], Loss]:
    """Register a loss under the name that recipes use (`loss.name`), with one line of help.

    A `separable` loss is the weighted sum of a function of each positive and a function of its negatives: explanations
    then take less time.
    """

    def register(function: Loss) -> Loss:
        LOSSES[name], registry.LOSSES[name] = function, help
        if separable:
            SEPARABLE.add(name)
        return function

    return register


def loss_function(name: str) -> Loss:
    """Return a loss by the name that recipes use."""
    if name not in LOSSES:
        raise RecipeError(
            f"loss.name: no loss '{name}'{suggest(name, LOSSES)}; losses: {', '.join(LOSSES)}; "
            "one that is defined outside the package needs its plug-in: pairre --plugin MODULE …"
        )
    return LOSSES[name]


@loss("self-adversarial", "binary, negatives weighted by their own scores; the PairRE paper's", separable=True)
def self_adversarial(
    positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, recipe: LossRecipe
) -> Tensor:
    """Return ½ [−log σ(γ + s) − Σ_i p_i log σ(−γ − s_i)], p = softmax(α s_i) without a gradient.

    γ is the margin, α the temperature (Sun et al., ICLR 2019).
    """
    margin, temperature = recipe.margin, recipe.temperature
    kernels = backend(negative.device.type)
    if kernels.self_adversarial and 0 < negative.shape[1] <= kernels.max_fused_negatives and len(positive):
        return kernels.self_adversarial(positive, negative, known, weight, margin, temperature)
    with torch.no_grad():
        logits = temperature * negative
        p = (logits if known is None else logits.masked_fill_(known, MASKED)).softmax(dim=1)
        if known is not None:
            p.masked_fill_(known, 0)
    true = F.softplus(-margin - positive)
    false = (p * F.softplus(margin + negative)).sum(1)
    return (weight * (true + false)).sum() / 2


@loss("cross-entropy", "softmax over the positive and its negatives")
def cross_entropy(
    positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, recipe: LossRecipe
) -> Tensor:
    """Return −log of the probability of the positive in a softmax of scores times the temperature."""
    if (fused := backend(negative.device.type).cross_entropy) and negative.numel():
        return fused(positive, negative, known, weight, recipe.temperature)
    positive, negative = recipe.temperature * positive, recipe.temperature * negative
    if known is not None:
        negative = negative.masked_fill(known, MASKED)
    total = torch.logaddexp(positive, negative.logsumexp(dim=1))
    return (weight * (total - positive)).sum()


@loss("margin", "pairwise ranking")
def margin_ranking(
    positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, recipe: LossRecipe
) -> Tensor:
    """Return the mean over the negatives of max(0, γ − s + s_i) (Bordes et al., 2013)."""
    return (weight * _mean(F.relu(recipe.margin - positive[:, None] + negative), known)).sum()


@loss("logistic", "binary, all triples weighted equally", separable=True)
def logistic(positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, recipe: LossRecipe) -> Tensor:
    """Return −log σ(γ + s) − mean_i log σ(−γ − s_i)."""
    false = _mean(F.softplus(recipe.margin + negative), known)
    return (weight * (F.softplus(-recipe.margin - positive) + false)).sum()


@loss("k-vs-all", "binary over all entities, each query once with all its answers")
def k_vs_all(
    positive: Tensor,  # noqa: ARG001
    negative: Tensor,
    known: Tensor | None,
    weight: Tensor,
    recipe: LossRecipe,
) -> Tensor:
    """Return the binary cross-entropy over all entities, known ones labelled 1 (Dettmers et al., AAAI 2018).

    Labels are smoothed, y = (1 − ε) label + ε / E; logits are γ + s. A positive stands for its whole row of labels: the
    sampler draws one for each query, however many answers it has.
    """
    assert known is not None  # validation of the recipe ensures it
    labels = known * (1 - recipe.smoothing) + recipe.smoothing / known.shape[1]
    each = F.binary_cross_entropy_with_logits(recipe.margin + negative, labels, reduction="none").mean(1)
    return (weight * each).sum()


def _mean(values: Tensor, known: Tensor | None) -> Tensor:
    """Return the mean over the negatives that count."""
    if known is None:
        return values.mean(1)
    return values.masked_fill(known, 0).sum(1) / (~known).sum(1).clamp(min=1)


# --- the terms of a step ---


@dataclass(frozen=True)
class ScoredBatch:
    """What loss terms see of a step."""

    batch: Batch
    targets: Targets
    leaves: dict[str, Tensor]  # rows as gathered, by table: what gradients are taken of
    stored: EntityRows  # as gathered
    entity: EntityRows  # as scored: encoded, where a model does so
    relation_rows: Tensor  # [B, ·] rows that were scored, or [G, ·] where each group of positives has one
    all_relations: Tensor  # [R, ·], or none in steps that do not corrupt relations
    positive: Tensor  # [B]
    negative: Tensor  # [B, K]

    @property
    def relation(self) -> Tensor:
        """The relation row of each positive, [B, ·]."""
        groups = self.batch.layout.relation_groups if isinstance(self.batch.layout, Shared) else None
        if groups is None or groups.first is not None:
            return self.relation_rows
        return F.embedding(groups.number, self.relation_rows)


Term = Callable[[ScoredBatch], Tensor]


class EntityTerm:
    """The loss over corrupted entities."""

    def __init__(self, recipe: LossRecipe) -> None:
        self.loss, self.recipe = loss_function(recipe.name), recipe

    def __call__(self, scored: ScoredBatch) -> Tensor:
        """Return the loss of positives against their negatives."""
        targets = scored.targets
        return self.loss(scored.positive, scored.negative, targets.known, weight=targets.weight, recipe=self.recipe)


class RelationTerm:
    """The same loss over all relations between the two entities of a positive."""

    def __init__(self, recipe: LossRecipe, model: Model, num_sides: int) -> None:
        self.loss, self.recipe, self.model = loss_function(recipe.name), recipe, model
        # Where only one side's steps have this term, it counts twice.
        self.weight = recipe.relation_weight * len(STEP_SIDES) / num_sides

    def __call__(self, scored: ScoredBatch) -> Tensor:
        """Return the weighted loss of positives against all relations."""
        batch, targets = scored.batch, scored.targets
        negative = self.model.score_relation_rows(batch.side, scored.entity.anchor_and_true, scored.all_relations)
        value = self.loss(scored.positive, negative, targets.known_relations, weight=targets.weight, recipe=self.recipe)
        return self.weight * value
