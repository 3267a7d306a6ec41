"""Score queries against candidates, in plain PyTorch.

B queries, K candidates of each query, N candidate rows, D features.

Scores without a gradient have the same bits whatever the shapes, so that equal entities tie. A sum over features adds
halves to each other, where a reduction of torch may choose its order by the shape; a product with a matrix is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Metric = Literal["l1", "l2", "modulus", "dot"]
PairScore = Callable[[Tensor, Tensor | None, Tensor], Tensor]  # a formula of (query, scale, candidate) [..., D]
HALF = (torch.float16, torch.bfloat16)  # tables may be stored so; scores are computed in float32
_Method = TypeVar("_Method", bound=Callable[..., Tensor])
MAX_ELEMENTS = 1 << 25  # elements of one [queries, candidates, features] temporary
_DESCRIBED = "described_for_kernels"  # the attribute of a model's `pair_score` that `has_kernel` sets


class BlockFormula:
    """A formula that scores all pairs of a block by itself, without a temporary of queries × candidates × features.

    Where `score_candidates` and `true_scores` score the same pair, they return the same bits.
    """

    def __call__(self, q: Tensor, w: Tensor | None, c: Tensor) -> Tensor:
        """Return the scores of pairs, as any `PairScore`."""
        raise NotImplementedError

    def score_candidates(self, query: Tensor, scale: Tensor | None, rows: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return what `score_candidates` returns."""
        raise NotImplementedError

    def true_scores(self, query: Tensor, scale: Tensor | None, rows: Tensor) -> Tensor:
        """Return the scores [B] of query b against row b."""
        raise NotImplementedError


@dataclass(frozen=True)
class Formula:
    """What the kernels of a GPU know a model's own formula by."""

    kernel: Literal["groups", "likelihood", "divergence"]
    unroll: int = 1  # features that are added up together: those of a group


def has_kernel(describe: Callable[[Any], Formula]) -> Callable[[_Method], _Method]:
    """Mark a model's `pair_score` as a formula that GPU kernels know; `describe` gets the model."""

    def mark(method: _Method) -> _Method:
        setattr(method, _DESCRIBED, describe)
        return method

    return mark


def formula_of(metric: PairScore) -> Formula | None:
    """Return by what GPU kernels know a model's own formula, or None."""
    describe = getattr(metric, _DESCRIBED, None)
    return describe(metric.__self__) if describe else None  # type: ignore[attr-defined]


def temporary_elements(metric: Metric | PairScore, candidates: Tensor) -> int:
    """Return how many elements are held at a time for each query that is scored against candidates [N, D]."""
    return max(len(candidates) if isinstance(metric, BlockFormula) else candidates.numel(), 1)


@cache
def check_arguments(metric: str, num_features: int, has_scale: bool, has_ids: bool, has_weights: bool) -> None:
    """Raise ValueError for an unknown metric and for combinations of arguments that mean nothing."""
    if metric not in get_args(Metric):
        raise ValueError(f"metric {metric!r}: unknown; there are {', '.join(get_args(Metric))}")
    if metric == "dot" and (has_scale or has_weights):
        raise ValueError("dot takes neither scale nor weights")
    if metric == "modulus" and num_features % 2:
        raise ValueError(f"modulus takes a real and an imaginary half, so an even number of features: {num_features}")
    if has_weights and has_ids:
        raise ValueError("weights go with all candidates: ids must be None")


def score_candidates(
    metric: Metric | PairScore,
    query: Tensor,
    scale: Tensor | None,
    candidates: Tensor,
    ids: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return scores of queries against candidates, from x = query[b] ∘ weights[n] − scale[b] ∘ candidates[n].

    "l1": −Σ |x|. "l2": −√Σ x². "modulus": features are a real half and an imaginary half, products are complex, and
    the score is −Σ |x|. "dot": Σ query ∘ candidates, which takes neither scale nor weights. Where a root is 0, so is
    its gradient.

    query, scale: [B, D]; candidates, weights: [N, D]; no scale, or no weights, means all ones. Without `ids` a query
    is scored against all N rows, [B, N]; with `ids` [B, K] query b is scored against rows ids[b], without weights.
    float16 and bfloat16 are computed in float32. Queries are scored in chunks, recomputed for the gradient, to bound
    memory.
    """
    if isinstance(metric, BlockFormula):
        return metric.score_candidates(query, scale, candidates, ids)
    if not callable(metric):
        check_arguments(metric, query.shape[1], scale is not None, ids is not None, weights is not None)

    def chunk(q: Tensor, w: Tensor | None, i: Tensor | None) -> Tensor:
        rows = candidates[None] if i is None else candidates[i]
        others = None if weights is None else weights[None]
        return pair_score(metric, q[:, None], None if w is None else w[:, None], rows, others)

    width = (len(candidates) if ids is None else ids.shape[1]) * query.shape[1]
    size = max(1, MAX_ELEMENTS // max(width, 1))
    if len(query) <= size:
        return chunk(query, scale, ids)
    parts = []
    for start in range(0, len(query), size):
        piece = tuple(None if t is None else t[start : start + size] for t in (query, scale, ids))
        parts.append(checkpoint(chunk, *piece, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(parts)


def pair_score(metric: Metric | PairScore, q: Tensor, w: Tensor | None, c: Tensor, r: Tensor | None = None) -> Tensor:
    """Return the score of each pair of a query `q` and a candidate `c`, [..., D] each with broadcast dimensions.

    `w` is the scale of the query, `r` the weights of the candidate. A metric may be a formula of a model's own.
    With [B, D] tables, query b is scored against candidate b alone.
    """
    if callable(metric):
        return metric(q, w, c)
    check_arguments(metric, q.shape[-1], w is not None, False, r is not None)
    q, w, c, r = (t if t is None or t.dtype not in HALF else t.float() for t in (q, w, c, r))  # type: ignore[assignment]
    if metric == "dot":
        return stable_sum(q * c)
    if metric == "modulus":
        x = _complex_product(q, r) - _complex_product(c, w)
        real, imaginary = x.chunk(2, -1)
        return -stable_sum(safe_sqrt(real * real + imaginary * imaginary))
    x = (q if r is None else q * r) - (c if w is None else c * w)
    return -stable_sum(x.abs()) if metric == "l1" else -safe_sqrt(stable_sum(x * x))


def _complex_product(a: Tensor, b: Tensor | None) -> Tensor:
    """Return a ∘ b over complex features, which are a real half and an imaginary half; without `b`, return `a`."""
    if b is None:
        return a
    (u, v), (s, t) = a.chunk(2, -1), b.chunk(2, -1)
    return torch.cat([u * s - v * t, u * t + v * s], -1)


def safe_sqrt(square: Tensor) -> Tensor:
    """Return the square root, with gradient 0 at 0."""
    zero = square == 0
    return square.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


def stable_sum(x: Tensor) -> Tensor:
    """Return the sum over the last dimension; without a gradient, its order does not depend on the other dimensions."""
    if torch.is_grad_enabled() and x.requires_grad:
        return x.sum(-1)
    while (width := x.shape[-1]) > 1:
        half = width // 2
        rest = x[..., 2 * half :]
        x = x[..., :half] + x[..., half : 2 * half]
        x = torch.cat([x, rest], -1) if width % 2 else x
    return x.sum(-1)


def stable_product(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return rows [..., N, K] times a matrix [..., K, M]; without a gradient, no bit of it depends on the other rows.

    A library of linear algebra chooses the order of its sums by the shape and by the place of a row. Here float32
    values are rounded to multiples of a power of two, about as fine as float32 itself, so that float64 holds every sum
    of their products exactly, in whatever order it is added up.
    """
    learns = torch.is_grad_enabled() and (rows.requires_grad or matrix.requires_grad)
    if learns or rows.dtype != torch.float32:
        return rows @ matrix
    digits = exact_digits(matrix.shape[-2])
    return (_on_grid(rows, -1, digits) @ _on_grid(matrix, -2, digits)).float()


def exact_digits(num_terms: int) -> int:
    """Return to how many binary digits factors are rounded, so that float64 holds a sum of so many products exactly."""
    return (53 - num_terms.bit_length()) // 2


def _on_grid(x: Tensor, dim: int, digits: int) -> Tensor:
    """Return x in float64, rounded to so many binary digits of the largest magnitude along a dimension."""
    largest = x.abs().amax(dim, keepdim=True).double().clamp(min=torch.finfo(torch.float32).tiny)
    unit = largest / torch.frexp(largest).mantissa * 2.0**-digits  # a power of two
    shift = 1.5 * 2.0**52 * unit  # a sum with it has no room for less than a unit
    return x.double().add_(shift).sub_(shift)


def unit_rows(rows: Tensor) -> Tensor:
    """Return rows divided by their Euclidean length."""
    return F.normalize(rows, dim=-1)
