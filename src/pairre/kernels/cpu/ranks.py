"""Count candidates above the true one on the CPU: scores of a few queries are counted while they are in the cache.

B queries, N candidate rows, D features.
"""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numba
import torch
from torch import Tensor

from pairre.kernels.cpu.scores import score_candidates
from pairre.kernels.reference import ranks as reference
from pairre.kernels.reference.ranks import RankingBatch
from pairre.kernels.reference.scores import BlockFormula, Metric, PairScore
from pairre.support.compiled import compiled
from pairre.support.threads import parallel_for

_SCORES = 1 << 21  # scores held at a time


@numba.njit(nogil=True)
def _subtract(row, threshold, n, above, ties):
    """Return counts without candidate n, if it is in this row."""
    if 0 <= n < row.shape[0]:
        return above - (row[n] > threshold), ties - (row[n] == threshold)
    return above, ties


@compiled(nogil=True)
def _count(scores, true, begin, end, known, true_id, first_id, higher, equal, start, stop):
    """Count all candidates, then subtract the ones that must not count."""
    for b in range(start, stop):
        row, threshold = scores[b], true[b]
        above, ties = 0, 0
        for n in range(row.shape[0]):
            above += row[n] > threshold
            ties += row[n] == threshold
        above, ties = _subtract(row, threshold, true_id[b] - first_id, above, ties)
        for p in range(begin[b], end[b]):
            if known[p] != true_id[b] and (p == begin[b] or known[p] != known[p - 1]):
                above, ties = _subtract(row, threshold, known[p] - first_id, above, ties)
        higher[b], equal[b] = above, ties


@torch.no_grad()
def true_scores(metric: Metric | PairScore, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """Return what `reference.true_scores` returns: a diagonal of `score_candidates`, where equal rows tie exactly."""
    if callable(metric):
        return reference.true_scores(metric, query, scale, candidates)
    result = torch.empty(len(query), dtype=query.dtype)
    for start in range(0, len(query), 32):
        part = slice(start, start + 32)
        part_scale = None if scale is None else scale[part]
        result[part] = score_candidates(metric, query[part], part_scale, candidates[part]).diagonal()
    return result


@torch.no_grad()
def count_above(batch: RankingBatch, candidates: Tensor, first_id: int) -> tuple[Tensor, Tensor]:
    """Return what `reference.count_above` returns."""
    if callable(batch.metric) and not isinstance(batch.metric, BlockFormula):
        return reference.count_above(batch, candidates, first_id)
    higher, equal = torch.empty(2, len(batch.query), dtype=torch.int64)
    known = batch.known_ids.contiguous().numpy()
    own = (batch.true_score, batch.known_begin, batch.known_end, batch.true_id, higher, equal)
    columns = [column.contiguous() for column in own]
    size = max(16, _SCORES // max(len(candidates), 1))
    for start in range(0, len(batch.query), size):
        part = slice(start, start + size)
        scale = None if batch.scale is None else batch.scale[part]
        scores = score_candidates(batch.metric, batch.query[part], scale, candidates)  # [B, N]
        true, begin, end, true_id, above, ties = (column[part].numpy() for column in columns)
        parallel_for(_count, len(scores), scores.numpy(), true, begin, end, known, true_id, first_id, above, ties)
    return higher, equal
