"""Collect pairs above a threshold on the CPU: scores of a few queries are compared while they are in the cache."""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pairre.kernels.cpu.scores import score_candidates
from pairre.kernels.reference import collect as reference
from pairre.kernels.reference.collect import Collected
from pairre.kernels.reference.scores import BlockFormula, Metric, PairScore
from pairre.support.compiled import compiled
from pairre.support.threads import parallel_for

_SCORES = 1 << 20  # scores held at a time


@compiled(nogil=True)
def _count(scores, threshold, counts, start, stop):
    """Count the scores of each query that reach the threshold."""
    for b in range(start, stop):
        row, found = scores[b], 0
        for n in range(row.shape[0]):
            found += row[n] >= threshold
        counts[b] = found


@compiled(nogil=True)
def _collect(scores, threshold, first, counts, begin, rows, columns, values):
    """Write the scores that reach the threshold, from position `begin` on, until the arrays are full."""
    for b in range(scores.shape[0]):
        if counts[b] == 0:
            continue
        for n in range(scores.shape[1]):
            if begin == rows.shape[0]:
                return
            if scores[b, n] >= threshold:
                rows[begin], columns[begin], values[begin] = first + b, n, scores[b, n]
                begin += 1


@torch.no_grad()
def collect_above(
    metric: Metric | PairScore, query: Tensor, scale: Tensor | None, candidates: Tensor, threshold: float, most: int
) -> Collected:
    """Return what `reference.collect_above` returns, in the order of queries and candidates."""
    if callable(metric) and not isinstance(metric, BlockFormula):
        return reference.collect_above(metric, query, scale, candidates, threshold, most)
    most = min(most, len(query) * len(candidates))
    rows, columns = np.empty((2, most), np.int64)
    values = np.empty(most, np.float64 if query.dtype == torch.float64 else np.float32)
    total, size = 0, max(16, _SCORES // max(len(candidates), 1))
    for start in range(0, len(query), size):
        part = slice(start, start + size)
        part_scale = None if scale is None else scale[part]
        scores = score_candidates(metric, query[part], part_scale, candidates).numpy()  # [B, N]
        counts = np.empty(len(scores), np.int64)
        limit = values.dtype.type(threshold)
        parallel_for(_count, len(scores), scores, limit, counts)
        _collect(scores, limit, start, counts, min(total, most), rows, columns, values)
        total += int(counts.sum())
    row, column, score = (torch.from_numpy(array[: min(total, most)]) for array in (rows, columns, values))
    return Collected(row, column, score, total)
