"""OTE with the context of an entity in the graph: GC-OTE, with two of the four distances of its paper, or with all."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.graph import Side
from pairre.kernels import backend
from pairre.models.contract import Query
from pairre.models.negative_layouts import NegativeLayout, Shared
from pairre.models.neighbourhood import Links, Neighbourhood
from pairre.models.rotation import OTE, group_size
from pairre.models.scoring import Model


class GCOTE(Neighbourhood, OTE):
    """The score of OTE plus the same distance to the context of the candidate (Tang et al., ACL 2020).

    The context of a tail is the mean of itself and of what OTE makes of (h', r') over the links that lead to it; that
    of a head the mean over the links that lead from it, turned back.
    """

    name = "gc-ote"
    formula = "−Σ_g (‖e^{s} ∘ Φ(M) h − t‖₂ + ‖e^{s} ∘ Φ(M) h − context of t‖₂) over groups of features"
    encoded_parts = {"vector": 1, "into": 1, "out": 1}
    anchors = False
    prepare_relations = OTE.prepare_relations
    sampled = 4
    rows_per_entity = 1 + sampled
    ranked = 16
    chunk = 1 << 11

    def ways(self, side: Side) -> tuple[int, ...]:
        """Return the direction of the context, which only candidates have: links to tails, links from heads."""
        return (0,) if self.candidate_side[side] == "tail" else (1,)

    def encode(self, own: Tensor, near: Tensor, links: Links, relation: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        """Return the entity and its context in each direction that is there."""
        r = self.parts("relation", relation)
        size, kernels = group_size(self.dim), backend(own.device.type)
        contexts = [own, own]
        matrices, scale = self._matrices(r), r.scale.view(len(relation), -1, size, 1)
        for i, way in enumerate(links.ways):
            turns = matrices * scale.exp() if way == 0 else matrices.mT * (-scale).exp()
            there = links.there[:, i].to(own.dtype)
            received = kernels.block_messages(turns.flatten(1), near[:, i], links.relation[:, i], there)
            contexts[way] = (own + received) / (1 + there.sum(1, keepdim=True))
        return torch.cat([own, *contexts], -1)

    def prepare(self, e: Any, r: Any) -> Tensor:  # noqa: ARG002
        """Return the entity and its context on a side."""
        return torch.cat([e.vector, e.into if e.side == "tail" else e.out], -1)

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """Return q twice: for the entity and for its context."""
        q, _ = super().tail_query(h[..., : self.dim], r)
        return torch.cat([q, q], -1), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return q twice: for the entity and for its context."""
        q, _ = super().head_query(r, t[..., : self.dim])
        return torch.cat([q, q], -1), None


class GCOTEFull(GCOTE):
    """The mean of all four distances of GC-OTE (Tang et al., ACL 2020): from either end to the other and its context.

    f(h) is what OTE makes of a head and g(t) of a tail. As f(h) is compared with t and its context, and g(t) with h and
    its context, a triple has the same score from both sides.
    """

    name = "gc-ote-full"
    formula = "−¼ Σ_g (‖f(h) − t‖₂ + ‖f(h) − context of t‖₂ + ‖g(t) − h‖₂ + ‖g(t) − context of h‖₂)"
    projects_entities = True
    sides_differ = False
    anchors = True
    rows_per_entity = 1 + 2 * GCOTE.sampled
    score_rows = Model.score_rows

    def ways(self, side: Side) -> tuple[int, ...]:  # noqa: ARG002
        """Return both directions, as anchors have contexts, too."""
        return (0, 1)

    def prepare(self, e: Any, r: Any) -> Tensor:
        """Return the entity, its context, and twice where the relation takes it, all divided by 4."""
        own, context = e.vector / 4, (e.out if e.side == "head" else e.into) / 4
        moved = self._moved(own, e.side, r)  # a sum of distances of quarters is the mean of four distances, to the bit
        rows = own.expand_as(moved), context.expand_as(moved), moved, moved
        if moved.stride(-1) == 1:
            return torch.cat(rows, -1)
        return torch.cat([part.mT for part in rows], -2).mT  # stored by feature, as kernels left it

    def _turn(self, side: Side, r: Any) -> tuple[Tensor, Tensor]:
        """Return the matrices that rows of entities of a side are multiplied by, and the logarithms of their scales."""
        return (self._matrices(r).mT, r.scale) if side == "head" else (self._matrices(r), -r.scale)

    def _moved(self, vector: Tensor, side: Side, r: Any) -> Tensor:
        """Return where a relation takes entities of a side."""
        (turn, scale), kernels = self._turn(side, r), backend(vector.device.type)
        if turn.dim() == 4 and turn.stride(0) == 0:  # one relation that was expanded
            turn, scale = turn[0], scale[0]
        if turn.dim() > 3 and turn.shape[-4] > 1:  # one relation for each row
            turned = kernels.stable_product(self._groups(vector).unsqueeze(-2), turn).squeeze(-2).flatten(-2)
        else:  # one for all rows, or for each row of rows
            shared = turn.squeeze(-4) if turn.dim() > 3 else turn
            turned = kernels.block_product(vector, shared)
        moved: Tensor = turned * scale.exp()
        return moved

    def tail_query(self, h: Tensor, r: Any) -> Query:  # noqa: ARG002
        """Return what (t, its context, g(t), g(t)) is compared with."""
        own, context, moved, _ = h.chunk(4, -1)
        return torch.cat([moved, moved, own, context], -1), None

    def head_query(self, r: Any, t: Tensor) -> Query:
        """Return what (h, its context, f(h), f(h)) is compared with."""
        return self.tail_query(t, r)

    def _score_negatives(
        self, side: Side, query: Query, relation: Tensor, rows: Tensor, layout: NegativeLayout
    ) -> Tensor:
        """Return what any model returns; in training on shared rows by products, as OTE."""
        groups = layout.relation_groups if isinstance(layout, Shared) else None
        size = group_size(self.dim)
        if not self.training or not groups or groups.first is None or not self._fits(1, rows, self.dim * size):
            return super()._score_negatives(side, query, relation, rows, layout)
        moved, _, own, context = query[0].chunk(4, -1)
        e, side = self.parts("entity", rows / 4), self.candidate_side[side]
        total = OTE.score_rows(self, moved, None, e.vector)
        total = total + OTE.score_rows(self, moved, None, e.into if side == "tail" else e.out)
        # Of x · m with m = W c, W = e^{±s} ∘ Φ, a product with c needs no m. Neither does its square, which is a
        # product of W Wᵀ with c cᵀ, and the same for all of a relation.
        turn, scale = self._turn(side, self.parts("relation", relation))
        w, scale_of_group = self._turn(side, self.parts("relation", F.embedding(groups.first, relation)))
        w, c = w * self._groups(scale_of_group.exp())[..., None, :], self._groups(e.vector)
        forms, pairs = (w @ w.mT).flatten(-2).transpose(0, 1), (c[..., None] * c[..., None, :]).flatten(-2)
        squares = F.embedding(groups.number, (forms @ pairs.permute(1, 2, 0)).transpose(0, 1).flatten(1))
        squares = squares.view(len(own), -1, len(rows)).transpose(0, 1)  # [groups, B, K]
        for x in (own, context):
            turned = (turn @ self._groups(x * scale.exp())[..., None]).squeeze(-1).transpose(0, 1)  # [groups, B, size]
            both = squares + self._groups(x).square().sum(-1).t()[:, :, None]
            products = torch.baddbmm(both, turned, c.permute(1, 2, 0), alpha=-2)
            total = total - products.clamp(min=1e-12).sqrt().sum(0)
        return total
