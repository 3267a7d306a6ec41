"""PairRE (Chao et al., ACL 2021)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pairre import ops
from pairre.graph import Side
from pairre.models.base import Model, Query


class PairRE(Model):
    """score(h, r, t) = −‖ĥ ∘ r.head − t̂ ∘ r.tail‖₁ with ê = e / ‖e‖₂ (Chao et al., ACL 2021).

    Both directions are one operation: a query `q` and a scale `w` meet a candidate `c` as −Σ |q − w c|.
    """

    name = "pairre"
    formula = "−‖ĥ ∘ r.head − t̂ ∘ r.tail‖₁, ê = e / ‖e‖₂"
    kind = "l1"
    relation_parts = {"head": 1, "tail": 1}

    def prepare(self, entity: Tensor) -> Tensor:
        """Put entity rows on the unit sphere."""
        return ops.unit_rows(entity)

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """q = ĥ ∘ r.head, w = r.tail."""
        return h * r.head, r.tail

    def head_query(self, r: Any, t: Tensor) -> Query:
        """q = t̂ ∘ r.tail, w = r.head."""
        return t * r.tail, r.head

    def batch_scores(
        self, side: Side, entity: Tensor, relation: Tensor, sets: tuple[int, int], place: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As any model's, by fewer launches where the device has a kernel for it."""
        fused = getattr(ops.backend(entity.device.type), "pairre_scores", None)
        if fused and sets[0] == 1 and place is None:
            scores: tuple[Tensor, Tensor] = fused(entity, relation, side == "tail")
            return scores
        return super().batch_scores(side, entity, relation, sets, place)
