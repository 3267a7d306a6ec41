"""Collect the pairs of a query and a candidate that score at least a threshold, in plain PyTorch.

B queries, N candidate rows, D features, H pairs found.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pairre.kernels.reference.scores import MAX_ELEMENTS, Metric, PairScore, score_candidates, temporary_elements


class Collected(NamedTuple):
    """Pairs that reach a threshold, in any order."""

    query: Tensor  # [H] int64 row of the query
    candidate: Tensor  # [H] int64 row of the candidate
    score: Tensor  # [H]
    total: int  # how many pairs there are; if it exceeds H, any H of them are held


@torch.no_grad()
def collect_above(
    metric: Metric | PairScore, query: Tensor, scale: Tensor | None, candidates: Tensor, threshold: float, most: int
) -> Collected:
    """Return at most `most` pairs of queries [B, D] and candidates [N, D] that score `threshold` or more.

    Scores are those of `score_candidates`. A score that is NaN reaches no threshold.
    """
    size = max(1, MAX_ELEMENTS // temporary_elements(metric, candidates))
    parts = []
    for start in range(0, max(len(query), 1), size):
        part = slice(start, start + size)
        scores = score_candidates(metric, query[part], None if scale is None else scale[part], candidates)  # [B, N]
        row, column = (scores >= threshold).nonzero().unbind(1)
        parts.append((row + start, column, scores[row, column]))
    row, column, score = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return Collected(row[:most], column[:most], score[:most], len(row))
