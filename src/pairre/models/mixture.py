"""The score of an ensemble: a weighted sum of scores of models whose numbers stand side by side in the rows.

B queries, K candidates of each query, N candidate rows, M members.

A query holds the weights of the members [M], then for each member its query and, if it has one, its scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.kernels import BlockFormula, Metric, PairScore, backend
from pairre.kernels.reference.scores import pair_score


@dataclass(frozen=True)
class Part:
    """How a member scores, and how many numbers of a query, a scale and a candidate are its own.

    `query` is None if the width of queries varies. Such members are the last, and have no scale; their queries are
    filled up with −1 to be of equal width, and share what the others leave.
    """

    metric: Metric | PairScore
    query: int | None
    scale: int  # 0 if there is none
    candidate: int


_Member = tuple[Metric | PairScore, Tensor, Tensor | None, Tensor]  # its metric, query, scale and candidate rows


class Mixture(BlockFormula):
    """Σ_m a_m score_m, with the weights a_m of the query."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self._candidate_widths = [part.candidate for part in parts]

    def pack(self, weights: Tensor, queries: list[tuple[Tensor, Tensor | None]]) -> Tensor:
        """Return the packed query [B, ·] from weights [B, M] and the members' queries."""
        columns = [weights]
        open_width = max(
            (q.shape[-1] for part, (q, _) in zip(self.parts, queries, strict=True) if part.query is None), default=0
        )
        for part, (q, w) in zip(self.parts, queries, strict=True):
            columns.append(F.pad(q, (0, open_width - q.shape[-1]), value=-1.0) if part.query is None else q)
            if part.scale:
                columns.append(torch.ones_like(q[..., : part.scale]) if w is None else w)
        return torch.cat(columns, -1)

    def __call__(self, q: Tensor, w: Tensor | None, c: Tensor) -> Tensor:  # noqa: ARG002
        """Return the scores of pairs [..., ·] whose leading dimensions broadcast."""
        weights, members = self._unpack(q, c)
        return _weighted(weights, [pair_score(*member) for member in members])

    def score_candidates(
        self,
        query: Tensor,
        scale: Tensor | None,  # noqa: ARG002
        rows: Tensor,
        ids: Tensor | None = None,
    ) -> Tensor:
        """Return scores [B, N] of all pairs, or [B, K] of query b and rows ids[b]."""
        weights, members = self._unpack(query, rows)
        score = backend(query.device.type).score_candidates
        return _weighted(weights[:, None], [score(metric, q, w, c.contiguous(), ids) for metric, q, w, c in members])

    def true_scores(self, query: Tensor, scale: Tensor | None, rows: Tensor) -> Tensor:  # noqa: ARG002
        """Return scores [B] of query b against row b, in the bits of `score_candidates`."""
        weights, members = self._unpack(query, rows)
        score = backend(query.device.type).true_scores
        return _weighted(weights, [score(metric, q, w, c.contiguous()) for metric, q, w, c in members])

    def _unpack(self, packed: Tensor, rows: Tensor) -> tuple[Tensor, list[_Member]]:
        """Return the weights [..., M] of a packed query, and what each member scores."""
        start = len(self.parts)
        weights, members = packed[..., :start], []
        left = packed.shape[-1] - start - sum((part.query or 0) + part.scale for part in self.parts)
        share = left // max(1, sum(part.query is None for part in self.parts))
        for part, candidates in zip(self.parts, torch.split(rows, self._candidate_widths, dim=-1), strict=True):
            middle = start + (share if part.query is None else part.query)
            stop = middle + part.scale
            scale = packed[..., middle:stop] if part.scale else None
            members.append((part.metric, packed[..., start:middle], scale, candidates))
            start = stop
        return weights, members


def _weighted(weights: Tensor, scores: list[Tensor]) -> Tensor:
    """Return Σ_m weights[..., m] ∘ scores[m]; always in one order, so that equal candidates tie."""
    total = weights[..., 0] * scores[0]
    for m, score in enumerate(scores[1:], start=1):
        total = total + weights[..., m] * score
    return total
