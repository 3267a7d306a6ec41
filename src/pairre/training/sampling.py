"""Positives → candidates: which triples a step sees, which side it corrupts, with what, and what must not count.

B positives a step, K negatives of each, S sets of negatives, E entities. Everything is a function of (seed, step), the
same on every device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pairre import kernels
from pairre.graph import Graph, Side
from pairre.graph.index import COLUMN, KnownTriples
from pairre.kernels.reference.batch import Plan
from pairre.settings.recipe import LossRecipe, Recipe
from pairre.support.randomness import key

SIDES: tuple[Side, Side] = ("tail", "head")


@dataclass(frozen=True)
class Batch:
    """What one step learns from."""

    anchor: Tensor  # [B] int64: the entity that is kept
    true: Tensor  # [B] int64: the entity that the negatives replace
    relation: Tensor  # [B] int64
    weight: Tensor  # [B]
    side: Side  # the side that is corrupted
    negatives: Tensor  # [S, K] entities, one row for each set
    share: int  # consecutive positives that share a set


class Sampler:
    """Draws the batch of any step, given its number alone."""

    def __init__(self, graph: Graph, recipe: Recipe, device: torch.device) -> None:
        self.filter = recipe.sampling.filter
        self.kernels = kernels.backend(device.type)
        self.num_negatives = recipe.sampling.negatives  # 0: all entities
        self.known: KnownTriples = graph.known_train.to(device)
        triples = graph.train.to(device)
        whole_rows = recipe.loss.name == "k-vs-all"
        positives = {side: self._questions(side) if whole_rows else triples for side in SIDES}
        self.batch_size = min(recipe.train.batch, *map(len, positives.values()))
        self.share = recipe.sampling.chunk_size or self.batch_size
        if self.num_negatives == 0:
            self.share = self.batch_size
            self.everyone = torch.arange(graph.num_entities, device=device)[None]
        self.kind = _type_ranges(graph).to(device) if recipe.sampling.same_type else None
        self.relations = torch.arange(graph.num_relations, device=device)
        num_sets = -(-self.batch_size // self.share)
        alike = not whole_rows and recipe.loss.query_balance == 0  # then the weights of both sides are kept once
        tails = self._weights(positives["tail"], "tail", recipe.loss)
        heads = tails if alike else self._weights(positives["head"], "head", recipe.loss)
        weights = {"tail": tails, "head": heads}
        self.plans = {
            side: Plan(
                triples=drawn,
                weight=weights[side],
                batch=self.batch_size,
                num_negatives=num_sets * self.num_negatives,
                num_entities=graph.num_entities,
                order=key(recipe.train.seed, "order"),
                negatives=key(recipe.train.seed, "negatives"),
            )
            for side, drawn in positives.items()
        }

    def _questions(self, side: Side) -> Tensor:
        """One triple [P, 3] for each pair that is asked about: its row of labels has the others.

        The same one in every epoch, so that a regulariser sees no other.
        """
        index = self.known.side(side)
        asked = torch.stack([index.pair_keys // index.num_second, index.pair_keys % index.num_second], 1)
        triples = torch.cat([asked.int(), index.members[index.offsets[:-1], None]], 1)
        return triples if side == "tail" else triples.flip(1)

    def _weights(self, triples: Tensor, side: Side, recipe: LossRecipe) -> Tensor:
        """What each positive counts in steps that corrupt `side`."""
        parts = []
        for part in torch.split(triples, 1 << 24):
            weight = torch.ones(len(part), dtype=torch.float64, device=part.device)  # the same on every device
            if recipe.subsampling:
                weight /= (self.known.count(part, "tail") + self.known.count(part, "head") + 6).double().sqrt()
            if recipe.query_balance:
                weight /= self.known.count(part, side).double().pow(recipe.query_balance)
            parts.append(weight.float())
        return torch.cat(parts)

    def batch(self, side: Side, clock: Tensor) -> Batch:
        """The batch of step `clock`, which corrupts `side`: tails on even steps, heads on odd ones."""
        plan = self.plans[side]
        drawn = self.kernels.draw(plan, COLUMN[side], clock)
        anchor, true, negatives = torch.split(drawn.entities, [self.batch_size, self.batch_size, plan.num_negatives])
        candidates = negatives.view(-1, self.num_negatives) if self.num_negatives else self.everyone
        if self.kind is not None:  # a number below E, brought into the range of a type
            first, size = self.kind[:, true, None]
            candidates = first + candidates * size // plan.num_entities
        return Batch(anchor, true, drawn.relation, drawn.weight, side, candidates, self.share)

    def known_mask(self, batch: Batch) -> Tensor | None:
        """Which negatives [B, K] must not count: training triples, and among all entities the positive itself."""
        if self.filter:
            index = self.known.side(batch.side)
            mask: Tensor = self.kernels.known_mask(index, batch.anchor, batch.relation, batch.negatives, batch.share)
            return mask
        return batch.negatives == batch.true[:, None] if self.num_negatives == 0 else None

    def known_relations(self, batch: Batch) -> Tensor:
        """Which relations [B, R] hold in train between the entities of a positive: its own and perhaps others."""
        ends = (batch.anchor, batch.true) if batch.side == "tail" else (batch.true, batch.anchor)
        index = self.known.side("relation")
        mask: Tensor = self.kernels.known_mask(index, *ends, self.relations[None], self.batch_size)
        return mask


def _type_ranges(graph: Graph) -> Tensor:
    """Where the type of each entity begins, and how many entities it has; [2, E] int64."""
    first = torch.tensor(list(graph.types.values()))
    sizes = torch.diff(first, append=torch.tensor([graph.num_entities]))
    return torch.stack([first, sizes]).repeat_interleave(sizes, 1)
