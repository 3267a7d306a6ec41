"""Draw the batch of a step and mark known triples on the CPU, as `reference/batch.py` defines it.

B positives, S sets of K candidates, each shared by consecutive positives.
"""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pairre.graph.index import SideIndex
from pairre.kernels.reference.batch import BatchPlan, DrawnBatch
from pairre.support.compiled import compiled
from pairre.support.random_streams import permuted, random_below, random_bits
from pairre.support.threads import parallel_for


@compiled(nogil=True)
def _draw(triples, order, number, rows, columns, corrupted, chosen, entities, relation):
    """Write positions of triples into `chosen`, anchors and true entities into `entities`, and relations."""
    num = chosen.shape[0]
    epoch, place = divmod(number // 2, triples.shape[0] // num)
    stream, place = random_bits(order, 2 * epoch + number % 2), place * num
    for b in range(num):
        chosen[b] = permuted(stream, place + b, triples.shape[0], rows, columns)
        row = triples[chosen[b]]
        entities[b], entities[num + b], relation[b] = row[2 - corrupted], row[corrupted], row[1]


@compiled(nogil=True)
def _draw_negatives(stream, counter, below, negatives):
    """Write uniform integers."""
    for k in range(negatives.shape[0]):
        negatives[k] = random_below(stream, counter + k, below)


def draw_batch(plan: BatchPlan, corrupted: int, step: Tensor) -> DrawnBatch:
    """Return what `reference.draw_batch` returns."""
    number, size = int(step), plan.batch_size
    entities = torch.empty(2 * size + plan.num_negatives, dtype=torch.int64)
    relation, chosen = torch.empty(2, size, dtype=torch.int64)
    _draw(
        *(plan.triples.numpy(), np.int64(plan.order_stream), number, *plan.order_grid),
        *(corrupted, chosen.numpy(), entities.numpy(), relation.numpy()),
    )
    counter = number * plan.num_negatives
    _draw_negatives(np.int64(plan.negatives_stream), counter, plan.negatives_below, entities[2 * size :].numpy())
    return DrawnBatch(entities, relation, plan.weight[chosen])


@compiled(nogil=True)
def _first_not_below(values, low, high, wanted):
    """Return the first position in values[low:high] whose value is not below `wanted`."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled(nogil=True)
def _known_range(keys, offsets, key):
    """Return where the members of a pair begin and end; both 0 for a pair that never occurs."""
    position = _first_not_below(keys, 0, keys.shape[0], key)
    if position < keys.shape[0] and keys[position] == key:
        return offsets[position], offsets[position + 1]
    return 0, 0


@compiled(nogil=True)
def _known_own(keys, offsets, members, pairs, candidates, chunk_size, out, start, stop):
    """Look up each candidate among the members of its pair: short ranges that stay in the cache."""
    for b in range(start, stop):
        begin, end = _known_range(keys, offsets, pairs[b])
        row = candidates[b // chunk_size]
        for k in range(row.shape[0]):
            position = _first_not_below(members, begin, end, row[k])
            out[b, k] = position < end and members[position] == row[k]


@compiled(nogil=True)
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
