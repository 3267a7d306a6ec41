"""Ranks on the CPU: the scores of a few queries at a time are counted while they are in the cache.

B queries, N candidate rows, D features.
"""

# Kernels carry no types: numba finds them out.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numba
import torch
from torch import Tensor

from pairre.kernels.cpu.compare import compare
from pairre.kernels.reference.compare import Kind, check
from pairre.support.threads import over_rows

_SCORES = 1 << 21  # scores at a time


@numba.njit(nogil=True)
def _take_off(row, threshold, n, above, same):
    if 0 <= n < row.shape[0]:
        return above - (row[n] > threshold), same - (row[n] == threshold)
    return above, same


@numba.njit(nogil=True, cache=True)
def _count(scores, true, begin, end, members, own, first, higher, equal, start, stop):
    """All candidates are counted, then those that are to be left out are taken off."""
    for b in range(start, stop):
        row, threshold = scores[b], true[b]
        above, same = 0, 0
        for n in range(row.shape[0]):
            above += row[n] > threshold
            same += row[n] == threshold
        above, same = _take_off(row, threshold, own[b] - first, above, same)
        for p in range(begin[b], end[b]):
            if members[p] != own[b] and (p == begin[b] or members[p] != members[p - 1]):
                above, same = _take_off(row, threshold, members[p] - first, above, same)
        higher[b], equal[b] = above, same


def true_scores(kind: Kind, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """As `reference.true_scores`: a diagonal of `compare`, all elements of which run through the same instructions."""
    check(kind, query, scale)
    result = torch.empty(len(query), dtype=query.dtype)
    with torch.no_grad():
        for start in range(0, len(query), 32):
            part = slice(start, start + 32)
            own = None if scale is None else scale[part]
            result[part] = compare(kind, query[part], own, candidates[part]).diagonal()
    return result


@torch.no_grad()
def count_above(
    kind: Kind,
    query: Tensor,
    scale: Tensor | None,
    candidates: Tensor,
    true: Tensor,
    begin: Tensor,
    end: Tensor,
    members: Tensor,
    own: Tensor,
    first: int,
) -> tuple[Tensor, Tensor]:
    """As `reference.count_above`."""
    check(kind, query, scale)
    higher, equal = torch.empty(2, len(query), dtype=torch.int64)
    lists = [t.contiguous() for t in (true, begin, end, own, higher, equal)]
    size = max(16, _SCORES // max(len(candidates), 1))
    for start in range(0, len(query), size):
        part = slice(start, start + size)
        scores = compare(kind, query[part], None if scale is None else scale[part], candidates)  # [B, N]
        t, b, e, o, h, s = (x[part].numpy() for x in lists)
        over_rows(_count, len(scores), scores.numpy(), t, b, e, members.contiguous().numpy(), o, first, h, s)
    return higher, equal
