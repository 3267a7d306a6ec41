"""Draw the batch of a step as a function of its number, and mark negatives that are known triples, in plain PyTorch.

N training triples, B positives a step, M negatives in all, S sets of K negatives.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pairre.graph.index import SideIndex
from pairre.support.randomness import bits, integers, permute


@dataclass(frozen=True)
class BatchPlan:
    """What all batches of one corrupted side are drawn from."""

    triples: Tensor  # [N, 3] int32
    weight: Tensor  # [N] float32
    batch_size: int
    num_negatives: int  # of a whole batch
    num_entities: int
    order_stream: int  # of random numbers
    negatives_stream: int
    orders: dict[int, tuple[int, Tensor]] = field(default_factory=dict)  # parity of steps → epoch, its order


@dataclass(frozen=True)
class DrawnBatch:
    """The ids of a batch."""

    entities: Tensor  # [2 B + M] int64: anchors, true entities, negatives
    relation: Tensor  # [B] int64
    weight: Tensor  # [B]


def epoch_order(plan: BatchPlan, number: int) -> tuple[int, Tensor]:
    """Return the epoch of step `number` and the random order [N] of its triples, which the plan keeps."""
    side, size, device = number % 2, len(plan.triples), plan.triples.device
    epoch = number // 2 // (size // plan.batch_size)
    if plan.orders.get(side, (-1,))[0] != epoch:
        stream = bits(plan.order_stream, torch.tensor(2 * epoch + side, device=device))
        plan.orders[side] = (epoch, permute(stream, torch.arange(size, device=device), size))
    return plan.orders[side]


def draw_batch(plan: BatchPlan, corrupted: int, step: Tensor) -> DrawnBatch:
    """Return the batch of a step; `corrupted` is the column that negatives replace: 2 on even steps, 0 on odd ones.

    Even and odd steps have epochs of their own. Triples that do not fill a last batch are left for the next epoch.
    """
    number, device = int(step), plan.triples.device
    position = number // 2 % (len(plan.triples) // plan.batch_size)
    chosen = epoch_order(plan, number)[1][position * plan.batch_size : (position + 1) * plan.batch_size]
    triples = plan.triples[chosen].long()
    counter = number * plan.num_negatives + torch.arange(plan.num_negatives, device=device)
    negatives = integers(plan.negatives_stream, counter, plan.num_entities)
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
