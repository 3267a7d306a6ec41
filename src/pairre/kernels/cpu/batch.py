"""Draw the batch of a step and mark known triples on the CPU, as `reference/batch.py` defines it.

B positives, S sets of K candidates, each shared by consecutive positives.
"""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor

from pairre.graph.index import SideIndex
from pairre.kernels.reference.batch import BatchPlan, DrawnBatch, epoch_order
from pairre.support.randomness import GOLDEN, MIX1, MIX2
from pairre.support.threads import parallel_for

_GOLDEN, _MIX1, _MIX2 = (np.uint64(constant % 2**64) for constant in (GOLDEN, MIX1, MIX2))


@numba.njit(nogil=True, cache=True)
def _draw(triples, chosen, corrupted, stream, counter, num_entities, entities, relation):
    """Write anchors, true entities and negatives into `entities`, and relations into `relation`.

    Negatives are those of `randomness.integers`.
    """
    num = chosen.shape[0]
    for b in range(num):
        row = triples[chosen[b]]
        entities[b], entities[num + b], relation[b] = row[2 - corrupted], row[corrupted], row[1]
    below, low = np.uint64(num_entities), np.uint64(0xFFFFFFFF)
    thirty, thirty_one, thirty_two, twenty_seven = np.uint64(30), np.uint64(31), np.uint64(32), np.uint64(27)
    for k in range(entities.shape[0] - 2 * num):
        x = np.uint64(stream) + np.uint64(counter + k + 1) * _GOLDEN
        x = (x ^ (x >> thirty)) * _MIX1
        x = (x ^ (x >> twenty_seven)) * _MIX2
        x = x ^ (x >> thirty_one)
        entities[2 * num + k] = ((x >> thirty_two) * below + ((x & low) * below >> thirty_two)) >> thirty_two


def draw_batch(plan: BatchPlan, corrupted: int, step: Tensor) -> DrawnBatch:
    """Return what `reference.draw_batch` returns."""
    number = int(step)
    epoch, position = divmod(number // 2, len(plan.triples) // plan.batch_size)
    order = plan.orders.get(number % 2)
    if order is None or order[0] != epoch:
        order = epoch_order(plan, number)
    chosen = order[1][position * plan.batch_size : (position + 1) * plan.batch_size]
    entities = torch.empty(2 * plan.batch_size + plan.num_negatives, dtype=torch.int64)
    relation = torch.empty(plan.batch_size, dtype=torch.int64)
    stream, counter = np.int64(plan.negatives_stream), number * plan.num_negatives
    _draw(
        *(plan.triples.numpy(), chosen.numpy(), corrupted, stream, counter, plan.num_entities),
        *(entities.numpy(), relation.numpy()),
    )
    return DrawnBatch(entities, relation, plan.weight[chosen])


@numba.njit(nogil=True, cache=True)
def _first_not_below(values, low, high, wanted):
    """Return the first position in values[low:high] whose value is not below `wanted`."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(nogil=True, cache=True)
def _known_range(keys, offsets, key):
    """Return where the members of a pair begin and end; both 0 for a pair that never occurs."""
    position = _first_not_below(keys, 0, keys.shape[0], key)
    if position < keys.shape[0] and keys[position] == key:
        return offsets[position], offsets[position + 1]
    return 0, 0


@numba.njit(nogil=True, cache=True)
def _known_own(keys, offsets, members, pairs, candidates, chunk_size, out, start, stop):
    """Look up each candidate among the members of its pair: short ranges that stay in the cache."""
    for b in range(start, stop):
        begin, end = _known_range(keys, offsets, pairs[b])
        row = candidates[b // chunk_size]
        for k in range(row.shape[0]):
            position = _first_not_below(members, begin, end, row[k])
            out[b, k] = position < end and members[position] == row[k]


@numba.njit(nogil=True, cache=True)
def _known_shared(keys, offsets, members, pairs, ordered, order, out, start, stop):
    """Look up candidates that all pairs share, sorted: the shorter list is looked up in the longer one."""
    num = ordered.shape[0]
    for b in range(start, stop):
        out[b] = False
        begin, end = _known_range(keys, offsets, pairs[b])
        if end - begin > num:
            for k in range(num):
                position = _first_not_below(members, begin, end, ordered[k])
                out[b, order[k]] = position < end and members[position] == ordered[k]
            continue
        for i in range(begin, end):
            position = _first_not_below(ordered, 0, num, members[i])
            while position < num and ordered[position] == members[i]:
                out[b, order[position]] = True
                position += 1


def known_mask(index: SideIndex, anchor: Tensor, relation: Tensor, candidates: Tensor, chunk_size: int) -> Tensor:
    """Return what `reference.known_mask` returns."""
    out = torch.empty(len(anchor), candidates.shape[1], dtype=torch.bool)
    arrays = (index.pair_keys.numpy(), index.offsets.numpy(), index.members.numpy())
    pairs = (anchor * index.num_second + relation).numpy()
    if len(candidates) == 1:
        ordered, order = candidates[0].sort()
        parallel_for(_known_shared, len(out), *arrays, pairs, ordered.numpy(), order.numpy(), out.numpy())
    else:
        rows = candidates.contiguous().numpy()
        parallel_for(_known_own, len(out), *arrays, pairs, rows, chunk_size, out.numpy())
    return out
