"""Draw the batch of a step as a function of its number, and mark negatives that are known triples, in plain PyTorch.

N training triples, B positives a step, M negatives in all, S sets of K negatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from pairre.graph.index import SideIndex
from pairre.support.randomness import bits, grid, integers, permute


class Weights(Protocol):
    """The weight of each triple: a tensor [N], or an object that computes those that are asked for."""

    def __getitem__(self, positions: Tensor, /) -> Tensor:
        """Return the weights of the triples at some positions, float32."""


@dataclass(frozen=True)
class BatchPlan:
    """What all batches of one corrupted side are drawn from."""

    triples: Tensor  # [N, 3] int32
    weight: Weights  # [N] float32; on a CUDA device a tensor
    batch_size: int
    num_negatives: int  # of a whole batch
    negatives_below: int  # negatives are uniform integers from 0 to this, exclusive
    order_stream: int  # of random numbers
    negatives_stream: int

    @cached_property
    def order_grid(self) -> tuple[int, int]:
        """Return rows and columns of the grid that the random order of an epoch is made on."""
        return grid(len(self.triples))


@dataclass(frozen=True)
class DrawnBatch:
    """The ids of a batch."""

    entities: Tensor  # [2 B + M] int64: anchors, true entities, negatives
    relation: Tensor  # [B] int64
    weight: Tensor  # [B]


def draw_batch(plan: BatchPlan, corrupted: int, step: Tensor) -> DrawnBatch:
    """Return the batch of a step; `corrupted` is the column that negatives replace: 2 on even steps, 0 on odd ones.

    Triples that do not fill a last batch are left for the next epoch. The random order of an epoch is evaluated at the
    positions of the batch alone, so that nothing grows with the number of triples.
    """
    number, device, size = int(step), plan.triples.device, plan.batch_size
    epoch, place = divmod(number // 2, len(plan.triples) // size)
    # Even and odd steps have epochs of their own.
    stream = bits(plan.order_stream, torch.tensor(2 * epoch + number % 2, device=device))
    chosen = permute(stream, place * size + torch.arange(size, device=device), len(plan.triples))
    triples = plan.triples[chosen].long()
    counter = number * plan.num_negatives + torch.arange(plan.num_negatives, device=device)
    negatives = integers(plan.negatives_stream, counter, plan.negatives_below)
    entities = torch.cat([triples[:, 2 - corrupted], triples[:, corrupted], negatives])
    return DrawnBatch(entities, triples[:, 1], plan.weight[chosen])


def known_mask(index: SideIndex, anchor: Tensor, relation: Tensor, candidates: Tensor, chunk_size: int) -> Tensor:
    """Return which candidates form a known triple with (anchor, relation), bool [B, K].

    `candidates` [S, K] are sets of entities, each shared by `chunk_size` consecutive positives.
    """
    rows = candidates[0] if len(candidates) == 1 else candidates.repeat_interleave(chunk_size, 0)[: len(anchor)]
    triples = anchor.new_zeros(len(anchor), 3)
    triples[:, index.pair[0]], triples[:, index.pair[1]] = anchor, relation
    return index.contains(triples, rows)
