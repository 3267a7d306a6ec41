"""Count the candidates that score above a true entity, in plain PyTorch.

B queries, N candidate rows, D features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pairre.kernels.reference.scores import (
    MAX_ELEMENTS,
    BlockFormula,
    Metric,
    PairScore,
    pair_score,
    score_candidates,
    temporary_elements,
)


@dataclass(frozen=True)
class RankingBatch:
    """B queries whose true entity is to be ranked, with the known entities that must not count.

    The known entities of query b are known_ids[known_begin[b]:known_end[b]], in ascending order; the true entity of
    the query is left out as well, whether it is among them or not.
    """

    metric: Metric | PairScore
    query: Tensor  # [B, D]
    scale: Tensor | None  # [B, D]; None means all ones
    true_score: Tensor  # [B]
    true_id: Tensor  # [B] int64
    known_begin: Tensor  # [B] int64
    known_end: Tensor  # [B] int64
    known_ids: Tensor  # [any] int32

    def __getitem__(self, part: slice) -> RankingBatch:
        """Return the queries of a slice."""
        return replace(
            self,
            query=self.query[part],
            scale=None if self.scale is None else self.scale[part],
            true_score=self.true_score[part],
            true_id=self.true_id[part],
            known_begin=self.known_begin[part],
            known_end=self.known_end[part],
        )


@torch.no_grad()
def true_scores(metric: Metric | PairScore, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """Return the scores [B] of query b against row b, in the very bits that `count_above` compares with."""
    if isinstance(metric, BlockFormula):
        return metric.true_scores(query, scale, candidates)
    return pair_score(metric, query, scale, candidates)


@torch.no_grad()
def count_above(batch: RankingBatch, candidates: Tensor, first_id: int) -> tuple[Tensor, Tensor]:
    """Return how many candidates score higher than the true entity of each query, and how many tie: [B] int64 each.

    Row n of `candidates` [N, D] is entity first_id + n. A score that is NaN is neither higher nor equal.
    """
    higher = torch.zeros(len(batch.query), dtype=torch.int64, device=batch.query.device)
    equal = torch.zeros_like(higher)
    size = max(1, MAX_ELEMENTS // temporary_elements(batch.metric, candidates))
    for start in range(0, len(batch.query), size):
        rows = slice(start, start + size)
        part = batch[rows]
        scores = score_candidates(part.metric, part.query, part.scale, candidates)  # [B, N]
        row, entity = _known_entities(part)
        row = torch.cat([row, torch.arange(len(scores), device=row.device)])
        column = torch.cat([entity, part.true_id]) - first_id
        inside = (column >= 0) & (column < len(candidates))
        scores[row[inside], column[inside]] = torch.nan
        higher[rows] = torch.count_nonzero(scores > part.true_score[:, None], dim=1)
        equal[rows] = torch.count_nonzero(scores == part.true_score[:, None], dim=1)
    return higher, equal


def _known_entities(batch: RankingBatch) -> tuple[Tensor, Tensor]:
    """Return the known entities of all queries, flat: the number of the query, and the entity."""
    lengths = batch.known_end - batch.known_begin
    row = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    skipped = lengths.cumsum(0) - lengths
    position = torch.arange(len(row), device=row.device) + (batch.known_begin - skipped)[row]
    return row, batch.known_ids[position].long()
