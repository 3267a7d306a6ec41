"""Score on a CUDA device: by CUDA C++ for the weighted L1 of shared candidates, by Triton for everything else.

The L1 of shared candidates is bound by arithmetic, and Triton gives no say in how a tile lies in registers. Both ways
have the signatures of `reference/scores.py`, and true scores always come from the way that counts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pairre.kernels.cuda import native
from pairre.kernels.cuda.formulas import formula_scores, has_gradient
from pairre.kernels.cuda.ranks import count_above as triton_count_above
from pairre.kernels.cuda.ranks import true_scores as triton_true_scores
from pairre.kernels.cuda.triton_scores import score_candidates as triton_score_candidates
from pairre.kernels.cuda.triton_scores import score_pairs as triton_score_pairs
from pairre.kernels.reference import ranks
from pairre.kernels.reference import scores as reference
from pairre.kernels.reference.ranks import RankingBatch
from pairre.kernels.reference.scores import Formula, Metric, PairScore, formula_of


class _WeightedL1(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, scale: Tensor, candidates: Tensor, weights: Tensor | None, may_split: bool
    ) -> Tensor:
        tables = query.contiguous(), scale.contiguous(), candidates.contiguous()
        weights = None if weights is None else weights.contiguous()
        ctx.save_for_backward(*tables, weights)
        return native.shared_scores(*tables, None if may_split else 1, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, w, c, r = ctx.saved_tensors
        gradients = native.shared_gradients(q, w, c, gradient.contiguous(), r)
        return *gradients, *[None] * (5 - len(gradients))


def _native(metric: Metric, *tables: Tensor | None) -> bool:
    """Return whether the kernels in CUDA C++ apply to these tables."""
    fit = metric == "l1" and all(t is not None and t.dtype == torch.float32 and t.numel() > 0 for t in tables)
    return fit and native.available()


def _scale(metric: Metric, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor | None:
    """Return the scale, or ones for an L1 without one, so that TransE is ranked by the kernels in CUDA C++, too.

    This is for scores without a gradient: training would compute one for the ones.
    """
    return torch.ones_like(query) if scale is None and _native(metric, query, candidates) else scale


def _formula(metric: PairScore, *tables: Tensor | None) -> Formula | None:
    """Return the formula that kernels know a model's own score by; None where they do not, or not for these tables."""
    fit = all(t is None or t.dtype == torch.float32 for t in tables)
    return formula_of(metric) if fit else None


def score_candidates(
    metric: Metric | PairScore,
    query: Tensor,
    scale: Tensor | None,
    candidates: Tensor,
    ids: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return what `reference.score_candidates` returns, in float32."""
    needed = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (query, scale, candidates, weights)
    )
    if callable(metric):
        formula = _formula(metric, query, scale, candidates) if ids is None else None
        if formula and (has_gradient(formula) or not needed):
            return formula_scores(formula, query, scale, candidates, needed)
        return reference.score_candidates(metric, query, scale, candidates, ids)
    if ids is None and weights is None and not needed:
        scale = _scale(metric, query, scale, candidates)
    if ids is not None or not _native(metric, query, scale, candidates, *([] if weights is None else [weights])):
        return triton_score_candidates(metric, query, scale, candidates, ids, weights)
    scores: Tensor = _WeightedL1.apply(query, scale, candidates, weights, needed)  # type: ignore[no-untyped-call]
    return scores


def true_scores(metric: Metric | PairScore, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """Return what `reference.true_scores` returns, in float32."""
    if callable(metric):
        if formula := _formula(metric, query, scale, candidates):
            return triton_true_scores(formula, query, scale, candidates)
        return ranks.true_scores(metric, query, scale, candidates)
    scale = _scale(metric, query, scale, candidates)
    if scale is not None and _native(metric, query, scale, candidates):
        return native.true_scores(query.contiguous(), scale.contiguous(), candidates.contiguous())
    return triton_true_scores(metric, query, scale, candidates)


def score_pairs(metric: Metric | PairScore, q: Tensor, w: Tensor | None, c: Tensor, r: Tensor | None = None) -> Tensor:
    """Return what `reference.pair_score` returns, in float32."""
    if callable(metric) or r is not None:
        return reference.pair_score(metric, q, w, c, r)
    return triton_score_pairs(metric, q, w, c)


def count_above(batch: RankingBatch, candidates: Tensor, first_id: int) -> tuple[Tensor, Tensor]:
    """Return what `reference.count_above` returns."""
    if callable(batch.metric):
        if formula := _formula(batch.metric, batch.query, batch.scale, candidates):
            return triton_count_above(batch, candidates, first_id, formula)
        return ranks.count_above(batch, candidates, first_id)
    scale = _scale(batch.metric, batch.query, batch.scale, candidates)
    if scale is None or not _native(batch.metric, batch.query, scale, candidates):
        return triton_count_above(batch, candidates, first_id)
    higher, equal = (torch.zeros(len(batch.query), dtype=torch.int64, device=batch.query.device) for _ in range(2))
    q, w, c = batch.query.contiguous(), scale.contiguous(), candidates.contiguous()
    known = (batch.known_begin, batch.known_end, batch.known_ids, batch.true_id)
    begin, end, members, own = (t.contiguous() for t in known)
    native.count_above(q, w, c, batch.true_score.contiguous(), begin, end, members, own, first_id, higher, equal)
    return higher, equal
