"""The batch of a step: which triples it sees and which entities replace the true ones, as a function of its number.

N training triples, B positives a step, M negatives in all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pairre.graph.index import SideIndex
from pairre.support.randomness import bits, integers, permute


@dataclass(frozen=True)
class Plan:
    """What all batches are drawn from."""

    triples: Tensor  # [N, 3] int32
    weight: Tensor  # [N] float32
    batch: int
    num_negatives: int  # of a whole batch
    num_entities: int
    order: int  # stream of the orders
    negatives: int  # stream of the negatives
    orders: dict[int, tuple[int, Tensor]] = field(default_factory=dict)  # side → epoch and its order, where kept


@dataclass(frozen=True)
class Draw:
    """A batch before anything is known about it."""

    entities: Tensor  # [2 B + M] int64: the entities that are kept, the true ones on the other side, the negatives
    relation: Tensor  # [B] int64
    weight: Tensor  # [B]


def draw(plan: Plan, corrupted: int, clock: Tensor) -> Draw:
    """The batch of step `clock`; `corrupted` is the column that the negatives replace, 2 on even steps and 0 on odd.

    Each side has its own epochs; what does not fill a last batch waits for the next one.
    """
    step, device = int(clock), plan.triples.device
    side, size = step % 2, len(plan.triples)
    epoch, position = divmod(step // 2, size // plan.batch)
    if plan.orders.get(side, (-1,))[0] != epoch:
        stream = bits(plan.order, torch.tensor(2 * epoch + side, device=device))
        plan.orders[side] = (epoch, permute(stream, torch.arange(size, device=device), size))
    chosen = plan.orders[side][1][position * plan.batch : (position + 1) * plan.batch]
    triples = plan.triples[chosen].long()
    counter = step * plan.num_negatives + torch.arange(plan.num_negatives, device=device)
    negatives = integers(plan.negatives, counter, plan.num_entities)
    entities = torch.cat([triples[:, 2 - corrupted], triples[:, corrupted], negatives])
    return Draw(entities, triples[:, 1], plan.weight[chosen])


def known_mask(index: SideIndex, kept: Tensor, relation: Tensor, candidates: Tensor, share: int) -> Tensor:
    """Which candidates [S, K] form a known triple with (kept, relation); bool [B, K], `share` positives a set."""
    rows = candidates[0] if len(candidates) == 1 else candidates.repeat_interleave(share, 0)[: len(kept)]
    return index.contains(kept, relation, rows)
