"""Queries against candidates in plain PyTorch: the definition of correct, and the fallback without kernels.

B queries, K candidates of each query, N candidate rows, D features.

Scores without a gradient have the same bits whatever the shapes: sums over features go by halves, each an addition of
elements, where a reduction of torch may choose its order by the shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Kind = Literal["l1", "l2", "modulus", "dot"]
Formula = Callable[[Tensor, Tensor | None, Tensor], Tensor]  # query, scale, candidate [..., D] → score, broadcasting
_BUDGET = 1 << 25  # elements of one [queries, candidates, features] temporary


def check(
    kind: Kind | Formula, query: Tensor, scale: Tensor | None, ids: Tensor | None = None, weights: Tensor | None = None
) -> None:
    """Refuse a kind that does not exist and combinations that mean nothing; for all backends."""
    if callable(kind):
        return
    if kind not in get_args(Kind):
        raise ValueError(f"kind {kind!r}: unknown; there are {', '.join(get_args(Kind))}")
    if kind == "dot" and not (scale is None and weights is None):
        raise ValueError("dot takes neither scale nor weights")
    if kind == "modulus" and query.shape[1] % 2:
        raise ValueError(f"modulus takes a real and an imaginary half, so an even number of features: {query.shape[1]}")
    if weights is not None and ids is not None:
        raise ValueError("weights go with all candidates: ids must be None")


def compare(
    kind: Kind | Formula,
    query: Tensor,
    scale: Tensor | None,
    candidates: Tensor,
    ids: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Scores of queries against candidates, from x = query[b] ∘ weights[n] − scale[b] ∘ candidates[n].

    "l1": −Σ |x|. "l2": −√Σ x². "modulus": features are a real half and an imaginary half, products are complex, and
    the score is −Σ |x|. "dot": Σ query ∘ candidates, which takes neither scale nor weights. Where a root is 0, so is
    its gradient.

    query, scale: [B, D]; candidates, weights: [N, D]; no scale, or no weights, is all ones. Without `ids` every query
    meets all N rows, [B, N]; with `ids` [B, K] query b meets rows ids[b], and there are no weights. float16 and
    bfloat16 are computed in float32. Queries go in chunks, recomputed for the gradient, so that memory stays bounded.
    """
    check(kind, query, scale, ids, weights)

    def chunk(q: Tensor, w: Tensor | None, i: Tensor | None) -> Tensor:
        rows = candidates[None] if i is None else candidates[i]
        others = None if weights is None else weights[None]
        return meet(kind, q[:, None], None if w is None else w[:, None], rows, others)

    width = (len(candidates) if ids is None else ids.shape[1]) * query.shape[1]
    size = max(1, _BUDGET // max(width, 1))
    if len(query) <= size:
        return chunk(query, scale, ids)
    parts = []
    for start in range(0, len(query), size):
        piece = tuple(None if t is None else t[start : start + size] for t in (query, scale, ids))
        parts.append(checkpoint(chunk, *piece, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(parts)


def pairs(kind: Kind | Formula, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """As `compare`, but query b meets row b of candidates [B, D] alone; the result is [B]."""
    check(kind, query, scale)
    return meet(kind, query, scale, candidates, None)


def true_scores(kind: Kind, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """As `pairs`, without a gradient and in the very bits that `count_above` compares with."""
    with torch.no_grad():
        return pairs(kind, query, scale, candidates)


@torch.no_grad()
def count_above(
    kind: Kind | Formula,
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
    """For each query, how many candidates score higher than true[b], and how many the same: [B] int64 each.

    Row n of candidates is entity first + n. Left out are the entities members[begin[b]:end[b]], ascending, and own[b].
    A score that is NaN is neither.
    """
    check(kind, query, scale)
    higher = torch.zeros(len(query), dtype=torch.int64, device=query.device)
    equal = torch.zeros_like(higher)
    size = max(1, _BUDGET // max(candidates.numel(), 1))
    for start in range(0, len(query), size):
        part = slice(start, start + size)
        scores = compare(kind, query[part], None if scale is None else scale[part], candidates)  # [B, N]
        row, entity = _listed(begin[part], end[part], members)
        row = torch.cat([row, torch.arange(len(scores), device=row.device)])
        column = torch.cat([entity, own[part]]) - first
        inside = (column >= 0) & (column < len(candidates))
        scores[row[inside], column[inside]] = torch.nan
        higher[part] = torch.count_nonzero(scores > true[part, None], dim=1)
        equal[part] = torch.count_nonzero(scores == true[part, None], dim=1)
    return higher, equal


def _listed(begin: Tensor, end: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
    """The entities members[begin[b]:end[b]] of all queries b, and which query each is of."""
    lengths = end - begin
    row = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    skipped = lengths.cumsum(0) - lengths
    return row, members[torch.arange(len(row), device=row.device) + (begin - skipped)[row]].long()


def meet(kind: Kind | Formula, q: Tensor, w: Tensor | None, c: Tensor, r: Tensor | None = None) -> Tensor:
    """The formula of a score; all [..., D], leading dimensions broadcast. A kind may be a formula of one's own."""
    if callable(kind):
        return kind(q, w, c)
    q, c = wide(q), wide(c)
    if kind == "dot":
        return total(q * c)
    x = _product(kind, q, r) - _product(kind, c, w)
    if kind == "l1":
        return -total(x.abs())
    if kind == "l2":
        return -root(total(x * x))
    real, imaginary = x.chunk(2, -1)
    return -total(root(real * real + imaginary * imaginary))


def _product(kind: Kind, a: Tensor, b: Tensor | None) -> Tensor:
    if b is None:
        return a
    b = wide(b)
    if kind != "modulus":
        return a * b
    (u, v), (s, t) = a.chunk(2, -1), b.chunk(2, -1)
    return torch.cat([u * s - v * t, u * t + v * s], -1)


def root(square: Tensor) -> Tensor:
    """The square root, with gradient 0 at 0."""
    zero = square == 0
    return square.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


def total(x: Tensor) -> Tensor:
    """The sum over the last dimension; without a gradient, in an order that does not depend on the other ones."""
    if torch.is_grad_enabled() and x.requires_grad:
        return x.sum(-1)
    while (width := x.shape[-1]) > 1:
        half = width // 2
        rest = x[..., 2 * half :]
        x = x[..., :half] + x[..., half : 2 * half]
        x = torch.cat([x, rest], -1) if width % 2 else x
    return x.sum(-1)


def wide(x: Tensor) -> Tensor:
    """Half precision as float32, all else as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
