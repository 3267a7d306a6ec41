"""Define relation patterns as equations between PairRE's vectors, and measure how nearly an equation holds.

R relations, D features, N instances of a pattern.

Every pattern is an equation x = y between two products of relation vectors, feature by feature. The paper's histograms
show its residual x − y. The agreement 1 − Σ|x − y| / Σ(|x| + |y|) measures how nearly the equation holds: it is the
fraction of the two products that cancels, and 1 where the equation holds. Each relation appears on both sides of the
equation, so vectors that are merely small, or small on one side as those of N-1 relations are, do not raise the
agreement. Unrelated vectors agree to about 0.2, or 0.36 for a symmetry, whose equation ignores signs.

A subrelation r1 → r2 means r2 = α ∘ r1, with the same α for heads and tails and |α| ≤ 1. The first condition is an
equation like the others. The second implies that r2 is not longer than r1; where it is longer, the agreement is
multiplied by the ratio of their lengths.
"""

# Functions compiled by numba have no annotations, because numba infers their types.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch

from pairre.models import Model, PairRE
from pairre.support.compiled import compiled
from pairre.support.threads import parallel_for

Kind = Literal["symmetry", "inverse", "subrelation", "composition"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FORMULAS: dict[Kind, str] = {
    "symmetry": "(rᴴ)² − (rᵀ)²",
    "inverse": "r₁ᴴ∘r₂ᴴ − r₁ᵀ∘r₂ᵀ",
    "subrelation": "r₁ᴴ∘r₂ᵀ − r₁ᵀ∘r₂ᴴ",
    "composition": "r₁ᴴ∘r₂ᴴ∘r₃ᵀ − r₁ᵀ∘r₂ᵀ∘r₃ᴴ",
}


@dataclass(frozen=True)
class Pattern:
    """A pattern and the ids of its relations.

    The relations are (r) for a symmetry, (r1, r2) for an inverse pair or for r1 → r2, and (r1, r2, r3) for a
    composition r1 ∘ r2 → r3. The score is an agreement of vectors or the confidence of a rule; it is not compared.
    """

    kind: Kind
    relations: tuple[int, ...]
    score: float = field(default=1.0, compare=False)


class Vectors(NamedTuple):
    """The two vectors of every relation, float32 [R, D]."""

    head: np.ndarray
    tail: np.ndarray


def paired_vectors(model: Model) -> Vectors | None:
    """Return the relation vectors of PairRE, or None for a model that has no such pair."""
    if not isinstance(model, PairRE):
        return None
    every = torch.arange(model.num_relations, device=model.device)
    with torch.no_grad():
        rows = model.parts("relation", model.relation_rows(every, "tail").float().cpu().nan_to_num())
    return Vectors(*(np.ascontiguousarray(part.numpy()) for part in (rows.head_scale, rows.tail_scale)))


def products(vectors: Vectors, kind: Kind, relations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the two sides x and y [N, D] of a pattern's equation for relation ids [N, …]."""
    head, tail = vectors
    ids = relations.T
    if kind == "symmetry":
        return head[ids[0]] ** 2, tail[ids[0]] ** 2
    if kind == "inverse":
        return head[ids[0]] * head[ids[1]], tail[ids[0]] * tail[ids[1]]
    if kind == "subrelation":
        return head[ids[0]] * tail[ids[1]], tail[ids[0]] * head[ids[1]]
    return head[ids[0]] * head[ids[1]] * tail[ids[2]], tail[ids[0]] * tail[ids[1]] * head[ids[2]]


def agreement(vectors: Vectors, kind: Kind, relations: np.ndarray) -> np.ndarray:
    """Return the agreement [N] of a pattern for relation ids [N, …], computed by its definition."""
    x, y = products(vectors, kind, relations)
    total = (np.abs(x) + np.abs(y)).sum(1)
    agreed: np.ndarray = 1 - np.divide(np.abs(x - y).sum(1), total, out=np.ones_like(total), where=total > 0)
    if kind == "subrelation":
        body, implied = lengths(vectors)[relations.T]
        agreed *= np.divide(body, implied, out=np.ones_like(body), where=implied > body)
    return agreed


def lengths(vectors: Vectors) -> np.ndarray:
    """Return the length of every relation [R], summed over features."""
    return np.asarray(np.hypot(*vectors).sum(1))


def agreements(left: Vectors, right: Vectors, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return the agreement [N] of x = left.head[i] ∘ right.head[j] and y = left.tail[i] ∘ right.tail[j]."""
    out = np.empty(len(i), np.float32)
    parallel_for(_agreements, len(i), *left, *right, i, j, out)
    return out


@compiled(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _agreements(left_head, left_tail, right_head, right_tail, i, j, out, start, stop):
    for n in range(start, stop):
        a, b, c, d = left_head[i[n]], right_head[j[n]], left_tail[i[n]], right_tail[j[n]]
        difference, total = np.float32(0), np.float32(0)
        for k in range(len(a)):
            x, y = a[k] * b[k], c[k] * d[k]
            difference += abs(x - y)
            total += abs(x) + abs(y)
        out[n] = 1 - difference / total if total > 0 else 0
