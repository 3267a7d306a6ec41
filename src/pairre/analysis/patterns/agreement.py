"""What a pattern says about PairRE's vectors, and how nearly they do what it says.

R relations, D features, N instances of a pattern.

Every pattern is an equation between two products of relation vectors, feature by feature: x = y. Its residual x − y is
what the paper's histograms show. How nearly it holds is its agreement, 1 − Σ|x − y| / Σ(|x| + |y|): the share of the
two products that cancels, 1 where the equation holds. As each relation stands on both sides, one whose vectors are
simply small, or small on one side as those of N-1 relations are, gains nothing by that. Vectors that have nothing to do
with each other agree to about a fifth, or a third for a symmetry, which asks for no signs.

A subrelation r1 → r2 asks for r2 = α ∘ r1 with the same α for heads and tails and |α| ≤ 1. The first is an equation
like the others; by the second r2 is no longer than r1, and where it is, the agreement is less by the ratio of their
lengths.
"""

# Kernels carry no types: numba finds them out.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numba
import numpy as np
import torch

from pairre.models import Model, PairRE
from pairre.support.threads import over_rows

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
    """A pattern of relations, by id: (r) symmetric, (r1, r2) inverse or r1 → r2, (r1, r2, r3) r1 then r2 → r3.

    The score is the agreement where vectors say it, the confidence where triples do; equality leaves it out.
    """

    kind: Kind
    relations: tuple[int, ...]
    score: float = field(default=1.0, compare=False)


class Vectors(NamedTuple):
    """The two vectors of every relation, float32 [R, D]."""

    head: np.ndarray
    tail: np.ndarray


def paired_vectors(model: Model) -> Vectors | None:
    """The relation vectors of PairRE, and nothing for models that have no such pair."""
    if not isinstance(model, PairRE):
        return None
    every = torch.arange(model.num_relations, device=model.relation.device)
    with torch.no_grad():
        rows = model.parts("relation", model.relation_rows(every).float().cpu().nan_to_num())
    return Vectors(*(np.ascontiguousarray(part.numpy()) for part in (rows.head, rows.tail)))


def products(vectors: Vectors, kind: Kind, relations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two sides of the equation for [N, …] relations; their difference is the residual, [N, D]."""
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
    """How nearly a pattern holds for [N, …] relations, [N]: the definition that the search computes faster."""
    x, y = products(vectors, kind, relations)
    whole = (np.abs(x) + np.abs(y)).sum(1)
    agreed: np.ndarray = 1 - np.divide(np.abs(x - y).sum(1), whole, out=np.ones_like(whole), where=whole > 0)
    if kind == "subrelation":
        one, two = lengths(vectors)[relations.T]
        agreed *= np.divide(one, two, out=np.ones_like(one), where=two > one)
    return agreed


def lengths(vectors: Vectors) -> np.ndarray:
    """The length of every relation, summed over features, [R]."""
    return np.asarray(np.hypot(*vectors).sum(1))


def agreements(left: Vectors, right: Vectors, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Agreement of x = left.head[i] ∘ right.head[j] and y = left.tail[i] ∘ right.tail[j], [N], on all cores."""
    out = np.empty(len(i), np.float32)
    over_rows(_agreements, len(i), *left, *right, i, j, out)
    return out


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _agreements(left_head, left_tail, right_head, right_tail, i, j, out, start, stop):
    for n in range(start, stop):
        a, b, c, d = left_head[i[n]], right_head[j[n]], left_tail[i[n]], right_tail[j[n]]
        apart, whole = np.float32(0), np.float32(0)
        for k in range(len(a)):
            x, y = a[k] * b[k], c[k] * d[k]
            apart += abs(x - y)
            whole += abs(x) + abs(y)
        out[n] = 1 - apart / whole if whole > 0 else 0
