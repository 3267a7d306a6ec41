"""Positives → candidates: which triples a step sees, which side it corrupts, with what, and what must not count.

B positives a step, K negatives of each, S sets of negatives, E entities. Everything is a function of (seed, step).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.graph.index import COLUMN, KnownTriples
from pairre.randomness import generator
from pairre.recipe import Recipe

SIDES: tuple[Side, Side] = ("tail", "head")


@dataclass(frozen=True)
class Batch:
    """What one step learns from."""

    triples: Tensor  # [B, 3] int64
    weight: Tensor  # [B], sums to 1
    side: Side  # the side that is corrupted
    negatives: Tensor | None  # [S, K] entities, one row for each set; None: all entities
    share: int  # consecutive positives that share a set
    known: Tensor | None  # [B, K] bool: negatives that are training triples

    @property
    def anchor(self) -> Tensor:
        """The entity that is kept."""
        return self.triples[:, 0 if self.side == "tail" else 2]

    @property
    def true(self) -> Tensor:
        """The entity that the negatives replace."""
        return self.triples[:, COLUMN[self.side]]


class Sampler:
    """Draws the batch of any step, given its number alone."""

    def __init__(self, graph: Graph, recipe: Recipe, device: torch.device) -> None:
        self.recipe = recipe
        self.device = device
        self.num_entities = graph.num_entities
        self.train = graph.train.to(device)
        self.batch_size = min(recipe.train.batch, len(graph.train))
        self.batches_per_epoch = len(graph.train) // self.batch_size
        self.known: KnownTriples = graph.known_train.to(device)
        self.weight = self._weights(graph).to(device)
        self._order: dict[Side, tuple[int, Tensor]] = {}

    def _weights(self, graph: Graph) -> Tensor:
        """1 / sqrt(#(h, r, ·) + #(·, r, t) + 6) for each training triple."""
        if not self.recipe.loss.weighting:
            return torch.ones(len(graph.train))
        known = graph.known_train
        count = known.count(graph.train, "tail") + known.count(graph.train, "head")
        return (count + 6).float().rsqrt()

    def batch(self, step: int) -> Batch:
        """Batch number `step`, from 0: tails and heads are corrupted in turn, each side with its own epochs."""
        side = SIDES[step % 2]
        epoch, position = divmod(step // 2, self.batches_per_epoch)
        chosen = self._epoch_order(side, epoch)[position * self.batch_size : (position + 1) * self.batch_size]
        triples = self.train[chosen].long()
        weight = self.weight[chosen]
        share = self.recipe.sampling.share or self.batch_size
        negatives = self._negatives(step, share)
        known = self._known(triples, side, negatives, share)
        return Batch(triples, weight / weight.sum(), side, negatives, share, known)

    def _epoch_order(self, side: Side, epoch: int) -> Tensor:
        """The order of the training triples in one pass; what does not fill a last batch waits for the next pass."""
        if self._order.get(side, (-1,))[0] != epoch:
            random = generator(self.recipe.train.seed, "order", side, epoch, device=self.device)
            order = torch.randperm(len(self.train), generator=random, device=self.device)
            self._order[side] = (epoch, order)
        return self._order[side][1]

    def _negatives(self, step: int, share: int) -> Tensor | None:
        num_negatives = self.recipe.sampling.negatives
        if num_negatives == 0:
            return None
        num_sets = -(-self.batch_size // share)
        random = generator(self.recipe.train.seed, "negatives", step, device=self.device)
        size = (num_sets, num_negatives)
        return torch.randint(self.num_entities, size, generator=random, device=self.device)

    def _known(self, triples: Tensor, side: Side, negatives: Tensor | None, share: int) -> Tensor | None:
        """Which negatives are training triples. Among all entities, the positive itself is one of them."""
        if negatives is None:
            known = torch.zeros(len(triples), self.num_entities, dtype=torch.bool, device=self.device)
            if self.recipe.sampling.filter:
                known[self.known.known(triples, side)] = True
            known.scatter_(1, triples[:, COLUMN[side], None], True)
            return known
        if not self.recipe.sampling.filter:
            return None
        candidates = negatives[0] if len(negatives) == 1 else negatives.repeat_interleave(share, 0)[: len(triples)]
        return self.known.contains(triples, side, candidates)
