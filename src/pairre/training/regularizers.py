"""Penalties on the parameters of the triples of a batch, and the term of a step that adds one.

A new penalty is a function of the signature `Penalty` with the decorator `regularizer`, in this file or in a plug-in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from pairre.models import Model
from pairre.settings import registry
from pairre.settings.recipe import RegularizerRecipe
from pairre.training.losses import ScoredBatch


class Penalty(Protocol):
    """The signature of every penalty."""

    def __call__(self, model: Model, scored: ScoredBatch, recipe: RegularizerRecipe) -> Tensor:
        """Return the sum of the penalty over a batch, without its weight."""


REGULARIZERS: dict[str, Penalty] = {}


def regularizer(name: str, help: str, *, for_products: bool = False) -> Callable[[Penalty], Penalty]:
    """Register a penalty under the name that recipes use (`regularizer.name`), with one line of help.

    One that is `for_products` is refused for models whose score is not linear in head, relation and tail.
    """

    def register(function: Penalty) -> Penalty:
        REGULARIZERS[name], registry.REGULARIZERS[name] = function, help
        if for_products:
            registry.FOR_PRODUCTS.add(name)
        return function

    return register


class Regularizer:
    """The term of a step: weight × mean of a penalty over the batch."""

    def __init__(self, recipe: RegularizerRecipe, model: Model) -> None:
        self.penalty, self.recipe, self.model = REGULARIZERS[recipe.name], recipe, model

    def __call__(self, scored: ScoredBatch) -> Tensor:
        """Return the penalty of the anchors, true entities and relations of a batch."""
        return self.recipe.weight * self.penalty(self.model, scored, self.recipe) / scored.batch.size


@regularizer("l2", "sum of squares")
def l2(model: Model, scored: ScoredBatch, recipe: RegularizerRecipe) -> Tensor:  # noqa: ARG001
    """Return Σ |x|² over the parameters."""
    return _over_rows(scored, lambda rows: rows.abs().pow(2))


@regularizer("n3", "sum of cubes of absolute values, made for 1-vs-all training of products")
def n3(model: Model, scored: ScoredBatch, recipe: RegularizerRecipe) -> Tensor:  # noqa: ARG001
    """Return Σ |x|³ over the parameters."""
    return _over_rows(scored, lambda rows: rows.abs().pow(3))


@regularizer("n3-modulus", "as `n3`, of the moduli of complex numbers and quaternions, as its authors have it")
def n3_modulus(model: Model, scored: ScoredBatch, recipe: RegularizerRecipe) -> Tensor:  # noqa: ARG001
    """Return Σ |x|³ over the moduli of features that are complex numbers or quaternions (Lacroix et al., ICML 2018)."""
    return _over_rows(scored, lambda rows: model.squared_moduli(rows).pow(1.5))


@regularizer(
    "dura",
    "squared lengths of the entities and, times `query_weight`, of both queries of a triple; for products",
    for_products=True,
)
def dura(model: Model, scored: ScoredBatch, recipe: RegularizerRecipe) -> Tensor:
    """Return Σ |h|² + |t|² + ω (|u|² + |v|²) with the queries u and v of a triple (Zhang et al., NeurIPS 2020).

    The score is u · t = h · v, so that u = Mᵀ h and v = M t with the matrix M of the relation.
    """
    h, t, u, v = _entities_and_queries(model, scored)
    return _squares(h) + _squares(t) + recipe.query_weight * (_squares(u) + _squares(v))


@regularizer(
    "er",
    "as `dura`, and both queries of a triple are drawn together by `equivariance`; for products",
    for_products=True,
)
def er(model: Model, scored: ScoredBatch, recipe: RegularizerRecipe) -> Tensor:
    """Return `dura` − 2 ω ε Σ u · v (Cao et al., AAAI 2022).

    The paper's a |u + v|² + b |u − v|² is (a + b) (|u|² + |v|² − 2 ε u · v) with ε = (b − a) / (a + b).
    """
    h, t, u, v = _entities_and_queries(model, scored)
    queries = _squares(u) + _squares(v) - 2 * recipe.equivariance * (u * v).sum()
    return _squares(h) + _squares(t) + recipe.query_weight * queries


def _over_rows(scored: ScoredBatch, power: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the sum over anchors and true entities, as they are stored, and over relations."""
    return power(scored.stored.anchor_and_true).sum() + power(scored.relation).sum()


def _entities_and_queries(model: Model, scored: ScoredBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return heads and tails as the score uses them, and the queries for tails and for heads, [B, D] each."""
    head, tail = scored.entity.anchor_and_true.chunk(2)
    if model.candidate_side[scored.batch.side] == "head":
        head, tail = tail, head
    r = model.parts("relation", scored.relation)
    h, t = model.prepare_entities(head, "head", None), model.prepare_entities(tail, "tail", None)
    return h, t, model.tail_query(h, r)[0], model.head_query(r, t)[0]


def _squares(x: Tensor) -> Tensor:
    return x.square().sum()
