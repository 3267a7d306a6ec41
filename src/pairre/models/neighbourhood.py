"""Models that encode an entity from its row and those of sampled neighbours: R-GCN, and what GC-OTE has of this.

n entities, K links in each direction: direction 0 are the links that lead to the entity, 1 those that lead from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pairre.graph import Graph, Side
from pairre.kernels import backend
from pairre.models.bilinear import DistMult
from pairre.models.contract import IdsByTable, Query, RowsByTable, Width
from pairre.models.rotation import largest_divisor
from pairre.models.scoring import MAX_ELEMENTS, Chunks, LocalRows, Model, RowSource, require_all_rows
from pairre.support.randomness import bits, generator, key, uniform

_BOTH = (0, 1)
_ENCODED_BY_KERNELS = 1 << 15  # entities at a time


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
    layers: ClassVar[int] = 1  # after which an entity has learnt of those that many links away
    sampled: ClassVar[int] = 8  # K in training
    rows_per_entity = 1 + len(_BOTH) * sampled
    ranked: ClassVar[int] = 64  # K at most, elsewhere
    encoded_parts: ClassVar[dict[str, Width]] = {"vector": 1}  # of an entity after encoding
    anchors: ClassVar[bool] = True  # whether the anchor of a query is encoded, too
    chunk: ClassVar[int] = 1 << 12  # entities encoded at a time, where this takes memory for each link
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

    def links(self, ids: Tensor, ways: tuple[int, ...] = _BOTH, hop: int = 0) -> Links:
        """Return links of entities [n]: a window into their random order, whose position depends on step and hop."""
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
            counter = torch.arange(degree.numel(), device=ids.device).view(degree.shape) + (hop << 40)
            start = bits(bits(self._stream, self.step), counter)
        place = first + (start % degree.clamp(min=1) + window) % degree.clamp(min=1)
        place = place.clamp(max=self.others.shape[1] - 1)
        return Links(self.others[chosen, place], self.link_relations[chosen, place], window < degree, ways)

    def encode(self, own: Tensor, near: Tensor, links: Links, relation: Tensor, layer: int) -> Tensor:
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

    def candidate_groups(
        self, triples: Tensor, side: Side, size: int, ids: Tensor | None = None
    ) -> Iterator[tuple[slice | Tensor, Query, Callable[[], Chunks]]]:
        """Yield what any model does; where most entities are needed, all are encoded once, for queries, too."""
        model, num_needed = self, len(triples) + (self.num_entities if ids is None else len(ids))
        if self.num_entities <= num_needed and self.num_entities * self.entities.width <= 2 * MAX_ELEMENTS:
            model = copy(self)  # whose tables are the same; threads may share this one
            model.entities = LocalRows(torch.cat([rows for _, rows in self.entities.chunks(self.num_entities)]))
        yield from super(Neighbourhood, model).candidate_groups(triples, side, size, ids)

    def all_relations(self) -> Tensor:
        """Return all relation rows as `encode` takes them."""
        every = torch.arange(self.stored["relation"].num_rows, device=self.device)
        return self.prepare_relations(self.stored["relation"].gather(every))

    def rows_needed(self, side: Side, ids: IdsByTable) -> tuple[IdsByTable, Callable[[RowsByTable], RowsByTable]]:
        """Gather the rows of the batch, of the entities' neighbours and of theirs if need be, and of all relations."""
        own, batch_relations = ids["entity"], ids["relation"]
        alone = 0 if self.anchors else len(batch_relations)
        positive = self._positives(side, own[: 2 * len(batch_relations)], batch_relations)[alone:]
        reached, hops = [own[alone:]], list[Links]()
        for hop in range(self.layers):
            ways = self.ways(side)
            drawn = self.links(reached[-1], ways, hop) if hop else self.links(own, ways)[alone:]
            links = self._without(drawn, reached[-1], positive)
            positive = positive.repeat_interleave(links.entity[0].numel(), 0)
            reached.append(links.entity.flatten())
            hops.append(links)
        needed = {
            "entity": torch.cat([own, *reached[1:]]),
            "relation": torch.arange(self.stored["relation"].num_rows, device=own.device),
        }

        def build(rows: RowsByTable) -> RowsByTable:
            relation = self.prepare_relations(rows["relation"])
            first, *values = torch.split(rows["entity"], [alone, *map(len, reached)])
            for layer in range(self.layers):
                values = [
                    self._encode_in_chunks(values[hop], values[hop + 1], hops[hop], relation, layer)
                    for hop in range(self.layers - layer)
                ]
            parts = [self.encode(first, values[0][:0], hops[0].none(), relation, 0)] if alone else []
            return {"entity": torch.cat([*parts, values[0]]), "relation": F.embedding(batch_relations, relation)}

        return needed, build

    def at_once(self) -> int:
        """Return how many entities are encoded at a time in training; ranking, with more links, takes an eighth."""
        return _ENCODED_BY_KERNELS if self.device.type == "cuda" else self.chunk

    def _encode_in_chunks(self, own: Tensor, near: Tensor, links: Links, relation: Tensor, layer: int) -> Tensor:
        """Return encoded rows; in several chunks, each is computed again for the gradient, to bound memory."""
        near, encode, size = near.view(*links.entity.shape, -1), self.encode, self.at_once()
        if len(own) > size:
            encode = partial(checkpoint, self.encode, use_reentrant=False, preserve_rng_state=False)
        parts = [slice(start, start + size) for start in range(0, len(own), size)]
        return torch.cat([encode(own[part], near[part], links[part], relation, layer) for part in parts])

    def _positives(self, side: Side, ends: Tensor, batch_relations: Tensor) -> Tensor:
        """Return the triples of a batch [2 B, 3], once for the anchors and once for the true entities."""
        anchor, true = ends.chunk(2)
        h, t = (anchor, true) if side == "tail" else (true, anchor)
        return torch.stack([h, batch_relations % self.num_relations, t], 1).repeat(2, 1)

    def _without(self, links: Links, own: Tensor, positive: Tensor) -> Links:
        """Return links of entities [n] without the positives of a batch, so that none reveals itself.

        `positive` [n, 3] has the triple that an entity was gathered for; entities after those [m] have none.
        """
        there, size = links.there.clone(), len(positive)
        h, r, t = (column[:, None] for column in positive.unbind(1))
        for i, way in enumerate(links.ways):
            ends = own[:size, None], links.entity[:size, i]
            head, tail = ends if way == 1 else ends[::-1]
            there[:size, i] &= ~((links.relation[:size, i] == r) & (head == h) & (tail == t))
        return Links(links.entity, links.relation, there, links.ways)


class EncodedRows(RowSource):
    """Entity rows of a model of neighbourhoods, encoded from the stored ones."""

    def __init__(self, model: Neighbourhood, stored: RowSource) -> None:
        require_all_rows(stored, f"{model.name}, which reads neighbours,")
        self._model, self._stored = model, stored
        self.num_rows, self.width = stored.num_rows, sum(model.widths(model.encoded_parts).values())

    def gather(self, ids: Tensor) -> Tensor:
        """Return the encoded rows of some ids."""
        model = self._model
        return self._encoded(ids.flatten(), model.all_relations(), model.layers).view(*ids.shape, -1)

    def _encoded(self, ids: Tensor, relation: Tensor, layers: int) -> Tensor:
        """Return rows of entities [n] after the first layers, of each entity that they need once."""
        model, parts = self._model, torch.split(ids, self._model.at_once() // 8)
        links = [model.links(part) for part in parts]
        rows: Callable[[Tensor], Tensor] = self._stored.gather
        if layers > 1:
            needed = torch.unique(torch.cat([ids, *(found.entity.flatten() for found in links)]))
            rows = partial(_rows_of, needed, self._encoded(needed, relation, layers - 1))
        pairs = zip(parts, links, strict=True)
        return torch.cat([model.encode(rows(p), rows(f.entity), f, relation, layers - 1) for p, f in pairs])

    def chunks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the encoded rows of entities that are held here, in chunks of at most `size`, with the first's id."""
        for start, rows in self._stored.chunks(size):
            yield start, self.gather(torch.arange(start, start + len(rows), device=rows.device))

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Store rows as they are before that."""
        self._stored.write(ids, rows)


def _rows_of(ids: Tensor, rows: Tensor, some: Tensor) -> Tensor:
    """Return rows [*some.shape, ·] of some ids, from those of all ids [n], which are in ascending order."""
    return F.embedding(torch.searchsorted(ids, some.contiguous()), rows)


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

    def encode(self, own: Tensor, near: Tensor, links: Links, relation: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        """Return e'."""
        dense, r = self.dense, self.parts("relation", relation)
        mixing = torch.stack([F.embedding(links.relation[:, i], a) for i, a in enumerate((r.into, r.out))], 1)
        share = links.there / links.there.sum((1, 2), keepdim=True).clamp(min=1)
        mixed = torch.einsum("nwkb,nwkd->nbd", mixing * share[..., None], near)
        bases = dense.bases.permute(0, 2, 1).flatten(0, 1)  # [b d, e]
        product = backend(own.device.type).stable_product
        return product(own, dense.self.mT) + product(mixed.flatten(1), bases)


class RGCNBlocks(Neighbourhood):
    """score(h, r, t) = Σ h'' ∘ r ∘ t'' after two layers e' = W₀ e + mean over links (s, x) of V_s x, a ReLU between.

    Schlichtkrull et al., ESWC 2018, as on FB15k-237: V_s is block-diagonal, with blocks of 5 × 5 or the largest divisor
    of `model.dim` below. Layers, relations and directions have matrices of their own.
    """

    name = "rgcn-blocks"
    formula = "Σ h'' ∘ r ∘ t'', two layers e' = W₀ e + mean over links (s, x) of V_s x, V_s block-diagonal"
    paper = "Schlichtkrull et al., ESWC 2018"
    patterns = DistMult.patterns | {"subrelation"}
    metric = "dot"
    layers = 2
    sampled = 4
    rows_per_entity = 1 + len(_BOTH) * sampled + (len(_BOTH) * sampled) ** 2
    relation_parts = {
        "vector": 1,
        "into": lambda dim: RGCNBlocks.layers * dim * largest_divisor(dim, 5),
        "out": lambda dim: RGCNBlocks.layers * dim * largest_divisor(dim, 5),
    }
    weight_parts = {"self": lambda dim: (RGCNBlocks.layers, dim, dim)}
    tail_query, head_query = DistMult.tail_query, DistMult.head_query

    def init_from_graph(self, graph: Graph, seed: int) -> None:
        """Start each W₀ as the identity, and blocks uniform in ±1/√5, or as wide as they are."""
        super().init_from_graph(graph, seed)
        with torch.no_grad():
            self.dense.self.copy_(torch.eye(self.dim).expand_as(self.dense.self))
            blocks = self.relation[:, self.dim :]
            blocks.mul_(largest_divisor(self.dim, 5) ** -0.5 / blocks.abs().max().clamp(min=1e-12))

    def encode(self, own: Tensor, near: Tensor, links: Links, relation: Tensor, layer: int) -> Tensor:
        """Return e'."""
        r = self.parts("relation", relation)
        kernels = backend(own.device.type)
        total = kernels.stable_product(own, self.dense.self[layer].mT)
        share = (links.there / links.there.sum((1, 2), keepdim=True).clamp(min=1)).to(own.dtype)
        table = torch.cat([part.chunk(self.layers, -1)[layer] for part in (r.into, r.out)])
        index = links.relation + len(relation) * torch.arange(len(_BOTH), device=own.device)[:, None]
        received = (t.flatten(1, 2) for t in (near, index, share))
        total = total + kernels.block_messages(table, *received)
        return total if layer == self.layers - 1 else total.relu()
