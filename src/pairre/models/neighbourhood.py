"""Models that encode an entity from its row and those of sampled neighbours: R-GCN and GC-OTE.

n entities, K links in each direction: direction 0 are the links that lead to the entity, 1 those that lead from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pairre.graph import Graph, Side
from pairre.kernels.reference.scores import stable_product
from pairre.models.bilinear import DistMult
from pairre.models.contract import IdsByTable, Query, RowsByTable, Width
from pairre.models.rotation import OTE, group_size
from pairre.models.scoring import Model, RowSource, require_all_rows
from pairre.support.randomness import bits, generator, key, uniform

_BOTH = (0, 1)


@dataclass(frozen=True)
class Links:
    """Links of n entities."""

    entity: Tensor  # [n, ways, K]: who is at the other end
    relation: Tensor  # [n, ways, K]
    there: Tensor  # [n, ways, K] bool: whether there is one
    ways: tuple[int, ...] = _BOTH

    def __getitem__(self, part: slice) -> Links:
        return Links(self.entity[part], self.relation[part], self.there[part], self.ways)

    def none(self) -> Links:
        """Return no links, in no direction."""
        nothing = self.entity[:, :0]
        return Links(nothing, nothing, nothing.bool(), ())


class Neighbourhood(Model):
    """A model whose entities are encoded from their rows and those of their neighbours before anything is scored.

    A step gathers K links of each entity and direction, drawn anew, without the very triple that it learns from;
    ranking uses the first `ranked` of them in a fixed random order. All relation rows are gathered, as there are few.
    """

    needs_other_rows = True
    trains_on_relations = False  # an encoded entity may reveal the link that is queried
    sampled: ClassVar[int] = 8  # K in training
    rows_per_entity = 1 + len(_BOTH) * sampled
    ranked: ClassVar[int] = 64  # K at most, elsewhere
    encoded_parts: ClassVar[dict[str, Width]] = {"vector": 1}  # of an entity after encoding
    anchors: ClassVar[bool] = True  # whether the anchor of a query is encoded, too
    chunk: ClassVar[int] = 1 << 12  # entities encoded at a time
    first: Tensor  # [2, E + 1]: where the links of an entity begin
    others: Tensor  # [2, N]: who is at their other end
    link_relations: Tensor  # [2, N]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._widths["entity"] = self.widths(self.encoded_parts)
        for name, shape in (("first", (2, self.num_entities + 1)), ("others", (2, 0)), ("link_relations", (2, 0))):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.int64), persistent=False)
        self._stream = 0

    def attach(self, graph: Graph, bound: float, seed: int) -> None:
        """Take the training links of every entity in both directions, in a random order."""
        super().attach(graph, bound, seed)
        self._stream = key(seed, "links")
        triples = graph.train.long()[torch.randperm(len(graph.train), generator=generator(seed, "links"))]
        first, others, relations = [], [], []
        for own, other in ((2, 0), (0, 2)):
            order = triples[:, own].argsort(stable=True)
            count = torch.bincount(triples[:, own], minlength=self.num_entities)
            first.append(torch.cat([count.new_zeros(1), count.cumsum(0)]))
            others.append(triples[order, other])
            relations.append(triples[order, 1])
        for name, parts in (("first", first), ("others", others), ("link_relations", relations)):
            setattr(self, name, torch.stack(parts).to(self.device))

    def links(self, ids: Tensor, ways: tuple[int, ...] = _BOTH) -> Links:
        """Return links of entities [n]: a window into their random order, whose position depends on the step."""
        chosen = torch.arange(ways[0], ways[-1] + 1, device=ids.device)[:, None]
        ids = ids.clamp(min=0)[:, None, None]
        if self.others.shape[1] == 0:
            nothing = torch.zeros(len(ids), len(ways), 1, dtype=torch.int64, device=ids.device)
            return Links(nothing, nothing, nothing.bool(), ways)
        first = self.first[chosen, ids]
        degree = self.first[chosen, ids + 1] - first
        window = torch.arange(self.sampled if self.training else self.ranked, device=ids.device)
        start = torch.zeros_like(degree)
        if self.training and self.step is not None:
            counter = torch.arange(degree.numel(), device=ids.device).view(degree.shape)
            start = bits(bits(self._stream, self.step), counter)
        place = first + (start % degree.clamp(min=1) + window) % degree.clamp(min=1)
        place = place.clamp(max=self.others.shape[1] - 1)
        return Links(self.others[chosen, place], self.link_relations[chosen, place], window < degree, ways)

    def encode(self, own: Tensor, near: Tensor, links: Links, relation: Tensor) -> Tensor:
        """Return encoded rows [n, ·] from those of entities, of neighbours [n, ways, K, ·] and of all relations."""
        raise NotImplementedError

    def prepare_relations(self, rows: Tensor) -> Tensor:
        """Return all relation rows as `encode` takes them."""
        return rows

    def ways(self, side: Side) -> tuple[int, ...]:  # noqa: ARG002
        """Return the directions of links that a step which corrupts `side` needs."""
        return _BOTH

    def encoded_entities(self, stored: RowSource) -> RowSource:
        """Return encoded rows of entities."""
        return EncodedRows(self, stored)

    def all_relations(self) -> Tensor:
        """Return all relation rows as `encode` takes them."""
        every = torch.arange(self.stored["relation"].num_rows, device=self.device)
        return self.prepare_relations(self.stored["relation"].gather(every))

    def rows_needed(self, side: Side, ids: IdsByTable) -> tuple[IdsByTable, Callable[[RowsByTable], RowsByTable]]:
        """Gather the rows of the batch, of the entities' neighbours, and of all relations."""
        own, batch_relations = ids["entity"], ids["relation"]
        links = self._without(self.links(own, self.ways(side)), side, own[: 2 * len(batch_relations)], batch_relations)
        alone = 0 if self.anchors else len(batch_relations)
        links = links[alone:]
        needed = {
            "entity": torch.cat([own, links.entity.flatten()]),
            "relation": torch.arange(self.stored["relation"].num_rows, device=own.device),
        }

        def build(rows: RowsByTable) -> RowsByTable:
            relation = self.prepare_relations(rows["relation"])
            entity, near = rows["entity"][: len(own)], rows["entity"][len(own) :].view(*links.entity.shape, -1)
            parts = [self.encode(entity[:alone], near[:0], links.none(), relation)] if alone else []
            encode = self.encode
            if len(links.entity) > self.chunk:  # then computed again for the gradient, so that memory stays bounded
                encode = partial(checkpoint, self.encode, use_reentrant=False, preserve_rng_state=False)
            for start in range(0, len(links.entity), self.chunk):
                part = slice(start, start + self.chunk)
                parts.append(encode(entity[alone:][part], near[part], links[part], relation))
            return {"entity": torch.cat(parts), "relation": F.embedding(batch_relations, relation)}

        return needed, build

    def _without(self, links: Links, side: Side, ends: Tensor, batch_relations: Tensor) -> Links:
        """Return links of a batch without the triples of the batch: a positive must not reveal itself."""
        anchor, true = ends.chunk(2)
        there = links.there.clone()
        size, relation = len(anchor), (batch_relations % self.num_relations)[:, None]
        for rows, other, way in (
            (slice(0, size), true, 1 if side == "tail" else 0),
            (slice(size, 2 * size), anchor, 0 if side == "tail" else 1),
        ):
            if way in links.ways:
                i = links.ways.index(way)
                same = (links.entity[rows, i] == other[:, None]) & (links.relation[rows, i] == relation)
                there[rows, i] &= ~same
        return Links(links.entity, links.relation, there, links.ways)


class EncodedRows(RowSource):
    """Entity rows of a model of neighbourhoods, encoded from the stored ones."""

    def __init__(self, model: Neighbourhood, stored: RowSource) -> None:
        require_all_rows(stored, f"{model.name}, which reads neighbours,")
        self._model, self._stored = model, stored
        self.num_rows, self.width = stored.num_rows, sum(model.widths(model.encoded_parts).values())

    def gather(self, ids: Tensor) -> Tensor:
        """Return the encoded rows of some ids."""
        model, parts, relation = self._model, [], self._model.all_relations()
        for part in torch.split(ids.flatten(), model.chunk // 8):
            links = model.links(part)
            parts.append(model.encode(self._stored.gather(part), self._stored.gather(links.entity), links, relation))
        return torch.cat(parts).view(*ids.shape, -1)

    def chunks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the encoded rows of entities that are held here, in chunks of at most `size`, with the first's id."""
        for start, rows in self._stored.chunks(size):
            yield start, self.gather(torch.arange(start, start + len(rows), device=rows.device))

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Store rows as they are before that."""
        self._stored.write(ids, rows)


class RGCN(Neighbourhood):
    """score(h, r, t) = Σ h' ∘ r ∘ t', e' = W₀ e + mean over links (s, x) of Σ_b a_sb V_b x.

    Schlichtkrull et al., ESWC 2018: one layer of a relational graph convolution under DistMult. The matrix of a link is
    a mix of bases V_b, whose weights a_s belong to the relation and the direction; the mean is over all links.
    """

    name = "rgcn"
    formula = "Σ h' ∘ r ∘ t', e' = W₀ e + mean over links (s, x) of Σ_b a_sb V_b x"
    paper = "Schlichtkrull et al., ESWC 2018"
    patterns = DistMult.patterns
    metric = "dot"
    bases: ClassVar[int] = 4
    relation_parts = {"vector": 1, "into": lambda _: RGCN.bases, "out": lambda _: RGCN.bases}
    weight_parts = {"self": lambda dim: (dim, dim), "bases": lambda dim: (RGCN.bases, dim, dim)}
    tail_query, head_query = DistMult.tail_query, DistMult.head_query

    def init_from_graph(self, graph: Graph, seed: int) -> None:
        """Start W₀ as the identity, bases uniform in ±1/√d, and their weights in ±1."""
        super().init_from_graph(graph, seed)
        dense = self.dense
        with torch.no_grad():
            counter = torch.arange(dense.bases.numel(), device=self.weights.device).view(dense.bases.shape)
            dense.bases.copy_((2 * uniform(key(seed, "init", "bases"), counter) - 1) * self.dim**-0.5)
            dense.self.copy_(torch.eye(self.dim))
            mixing = self.relation[:, self.dim :]
            mixing.copy_(mixing / mixing.abs().max().clamp(min=1e-12))

    def encode(self, own: Tensor, near: Tensor, links: Links, relation: Tensor) -> Tensor:
        """Return e'."""
        dense, r = self.dense, self.parts("relation", relation)
        mixing = torch.stack([F.embedding(links.relation[:, i], a) for i, a in enumerate((r.into, r.out))], 1)
        share = links.there / links.there.sum((1, 2), keepdim=True).clamp(min=1)
        mixed = torch.einsum("nwkb,nwkd->nbd", mixing * share[..., None], near)
        bases = dense.bases.permute(0, 2, 1).flatten(0, 1)  # [b d, e]
        return stable_product(own, dense.self.mT) + stable_product(mixed.flatten(1), bases)


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

    def encode(self, own: Tensor, near: Tensor, links: Links, relation: Tensor) -> Tensor:
        """Return the entity and its context in each direction that is there."""
        r = self.parts("relation", relation)
        size = group_size(self.dim)
        contexts = [own, own]
        for i, way in enumerate(links.ways):
            by = links.relation[:, i]
            form = "nkgij,nkgj->nkgi" if way == 0 else "nkgij,nkgi->nkgj"
            turn = F.embedding(by, r.matrix).view(*by.shape, -1, size, size)
            scale = F.embedding(by, r.scale if way == 0 else -r.scale).exp()
            turned = torch.einsum(form, turn, self._groups(near[:, i])).flatten(-2) * scale
            there = links.there[:, i, :, None]
            contexts[way] = (own + (turned * there).sum(1)) / (1 + there.sum(1))
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
