"""Everything that is derived from the maths of a model: scores of batches, of triples, of all candidates of a query.

Training calls `score_batch` with the rows that it gathered. Everything else takes ids: `score` for triples,
`score_candidates` for some entities of each query, `score_all` (and `score_tails`, `score_heads`) for every entity,
`score_relations` for every relation. Ranking walks over `candidate_groups`, so that no table of all scores is stored.

B triples, E entities, R relations, K candidates of each query, M rows of negatives, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pairre.graph import Side
from pairre.graph.index import COLUMN
from pairre.kernels import backend, compute_dtype
from pairre.models.contract import Query, ScoreFunction
from pairre.models.negative_layouts import Chunked, EntityRows, NegativeLayout, Own, Shared
from pairre.support.errors import PairREError
from pairre.support.processes import Processes

Chunks = Iterator[tuple[int, Tensor]]  # prepared rows of candidates, each chunk with the position of its first
MAX_ELEMENTS = 1 << 24  # of a temporary tensor


class RowSource(Protocol):
    """The rows of a table, wherever they are stored; a model gets them from here alone, by id or in chunks."""

    num_rows: int
    width: int
    processes: Processes | None = None  # which hold a block of ids each; None if all rows are held here

    def gather(self, ids: Tensor) -> Tensor:
        """Return the rows of some ids [*ids.shape, width], in the precision they are computed with.

        Where rows are divided over processes, all of them ask for the same ids.
        """

    def gather_held(self, ids: Tensor) -> tuple[int, Tensor]:
        """Return the rows of those of ids [N], ascending, that are held here, and the place of the first among ids.

        Held is the block `processes.block_of_rows(num_rows)`. A source that reads it without the others overrides this.
        """
        first, stop = held_places(self, ids)
        return first, self.gather(ids)[first:stop]

    def chunks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the rows that are held here in chunks of at most `size`, each with the id of its first."""

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Store rows [N, width] of some ids."""


def held_places(source: RowSource, ids: Tensor) -> tuple[int, int]:
    """Return the first and the last place, plus one, of those of ids [N], ascending, whose rows are held here."""
    if source.processes is None:
        return 0, len(ids)
    mine = source.processes.block_of_rows(source.num_rows)
    first, stop = torch.searchsorted(ids, torch.tensor([mine.start, mine.stop], device=ids.device)).tolist()
    return first, stop


def require_all_rows(source: RowSource, what: str) -> None:
    """Raise a PairREError, which names what needs them, if this process holds only a block of the rows."""
    if source.processes is not None:
        raise PairREError(
            f"{what} needs all rows in one process, and {source.processes.size} share them: without torchrun"
        )


class LocalRows(RowSource):
    """The rows of a table that is a tensor of this process."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.num_rows, self.width = table.shape

    def gather(self, ids: Tensor) -> Tensor:
        """Return the rows of some ids [*ids.shape, width], in the precision they are computed with."""
        return F.embedding(ids, self.table).to(compute_dtype(self.table.dtype))

    def chunks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Yield all rows in chunks of at most `size`, each with the id of its first."""
        for start in range(0, self.num_rows, size):
            yield start, self.table[start : start + size].to(compute_dtype(self.table.dtype))

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Store rows [N, width] of some ids."""
        self.table.detach()[ids] = rows.to(self.table.dtype)


class Model(ScoreFunction):
    """A score function with everything that is derived from it; subclass this one.

    `stored` has the sources of the rows of entities and relations as they are stored, `entities` and `relations` those
    of the rows that queries and candidates are made of. Both are the same unless a model encodes rows first.
    """

    entities: RowSource
    relations: RowSource
    processes: Processes | None  # which share the rows of entities, each with a block of them; None if this one has all

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.stored: dict[str, RowSource] = {}
        self.set_rows(LocalRows(self.entity), LocalRows(self.relation))

    def set_rows(self, entities: RowSource, relations: RowSource | None = None) -> None:
        """Take the rows of entities, and of relations unless they are None, from other sources."""
        self.stored["entity"], self.entities = entities, self.encoded_entities(entities)
        self.processes = self.entities.processes
        if relations is not None:
            self.stored["relation"], self.relations = relations, self.encoded_relations(relations)

    def sources(self) -> list[RowSource]:
        """Return the sources of all rows as they are stored."""
        return list(self.stored.values())

    def encoded_entities(self, stored: RowSource) -> RowSource:
        """Return the source of the entity rows that queries and candidates are made of, from those that are stored."""
        return stored

    def encoded_relations(self, stored: RowSource) -> RowSource:
        """Return the source of the relation rows that queries and candidates are made of, from those stored."""
        return stored

    # --- from rows ---

    def score_rows(self, q: Tensor, w: Tensor | None, rows: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return scores of queries against all prepared rows, [B, N], or against rows `ids` [B, K]."""
        return backend(q.device.type).score_candidates(self.metric or self.pair_score, q, w, rows, ids)

    def prepare_entities(self, rows: Tensor, side: Side, relation: Tensor | None) -> Tensor:
        """Return entity rows as the score uses them on a side; relation rows where the model projects entities."""
        e = self.parts("entity", rows)
        e.side = side
        return self.prepare(e, self.parts("relation", relation) if self.projects_entities else None)  # type: ignore[arg-type]

    def make_query(self, side: Side, anchor: Tensor, relation: Tensor) -> Query:
        """Return the query for candidates on a side, from rows of the entity on the other side and of the relation."""
        r = self.parts("relation", relation)
        if side == "tail" or self.reciprocal:
            return self.tail_query(self.prepare_entities(anchor, "head", relation), r)
        return self.head_query(r, self.prepare_entities(anchor, "tail", relation))

    def parts(self, table: str, rows: Tensor) -> SimpleNamespace:
        """Return rows [..., ·] of a table as a namespace of their named parts."""
        widths = self._widths[table]
        parts = [rows] if len(widths) == 1 else torch.split(rows, list(widths.values()), dim=-1)
        return SimpleNamespace(**dict(zip(widths, parts, strict=True)))

    def score_batch(
        self, side: Side, entity: EntityRows, relation: Tensor, layout: NegativeLayout
    ) -> tuple[Tensor, Tensor]:
        """Return scores [B] of positives and [B, K] of their negatives, from gathered rows; `relation` has B."""
        kernels = backend(relation.device.type)
        fused = getattr(kernels, self.fused_batch_kernel or "", None)
        if fused and isinstance(layout, Shared):
            return cast(tuple[Tensor, Tensor], fused(entity.rows, relation, self.candidate_side[side] == "tail"))
        anchor, true = entity.anchor_and_true.chunk(2)
        query = self.make_query(side, anchor, relation)
        candidates = self.prepare_entities(true, self.candidate_side[side], relation)
        positive = kernels.score_pairs(self.metric or self.pair_score, *query, candidates)
        return positive, self._score_negatives(side, query, relation, entity.negatives, layout)

    def _score_negatives(
        self, side: Side, query: Query, relation: Tensor, rows: Tensor, layout: NegativeLayout
    ) -> Tensor:
        """Return scores [B, K] of negatives from their gathered rows [M, ·]."""
        q, w = query
        side = self.candidate_side[side]
        if self.projects_entities:
            groups = layout.relation_groups if isinstance(layout, Shared) else None
            if groups and groups.first is not None and self._fits(len(groups.first), rows, q.shape[1]):
                relations = F.embedding(groups.first, relation)[:, None]
                return self._score_by_group(query, self.prepare_entities(rows[None], side, relations), groups.number)
            return self._score_projected(side, query, relation, layout.rows_of_each(rows, len(q)))
        rows = self.prepare_entities(rows, side, None)
        match layout:
            case Shared():
                return self.score_rows(q, w, rows)
            case Own(positions):
                return self.score_rows(q, w, rows, positions)
            case Chunked(num_sets, chunk_size):
                scales = [None] * num_sets if w is None else torch.split(w, chunk_size)
                chunks = zip(torch.split(q, chunk_size), scales, rows.chunk(num_sets), strict=True)
                return torch.cat([self.score_rows(*chunk) for chunk in chunks])

    def _fits(self, num_relations: int, rows: Tensor, width: int) -> bool:
        """Return whether all negatives, projected by every relation of a batch, fit into memory at once."""
        return num_relations * len(rows) * max(width, rows.shape[1]) <= 4 * MAX_ELEMENTS

    def _score_by_group(self, query: Query, projected: Tensor, number: Tensor) -> Tensor:
        """Return scores [B, K] of shared negatives that are projected once for each relation of a batch, [G, K, D]."""
        num = projected.shape[1]
        positions = number[:, None] * num + torch.arange(num, device=number.device)
        return self.score_rows(*query, projected.flatten(0, 1), positions)

    def _score_projected(self, side: Side, query: Query, relation: Tensor, entity: Tensor) -> Tensor:
        """Return scores [B, K] where candidates depend on the relation; `entity` [B or 1, K, ·] as stored.

        Queries are scored in chunks, recomputed for the gradient, so that memory stays bounded.
        """

        def chunk(q: Tensor, w: Tensor | None, relation: Tensor, entity: Tensor) -> Tensor:
            c = self.prepare_entities(entity, side, relation[:, None])
            return self.pair_score(q[:, None], None if w is None else w[:, None], c)

        q, w = query
        size = max(1, MAX_ELEMENTS // (entity.shape[1] * max(q.shape[1], self.stored["relation"].width)))
        if len(q) <= size:
            return chunk(q, w, relation, entity)
        scores = []
        for start in range(0, len(q), size):
            part = slice(start, start + size)
            rows = entity if len(entity) == 1 else entity[part]
            inputs = (q[part], None if w is None else w[part], relation[part], rows)
            scores.append(checkpoint(chunk, *inputs, use_reentrant=False, preserve_rng_state=False))
        return torch.cat(scores)

    def score_relation_rows(self, side: Side, anchor_and_true: Tensor, relations: Tensor) -> Tensor:
        """Return scores [B, R] of relation rows between pairs of entities, queried for `side`.

        `anchor_and_true` holds B rows of anchors, then B of the entities on `side`. Pairs are scored in chunks,
        recomputed for the gradient, unless one product of matrices has all scores.
        """
        if self.linear_in_relation:
            anchor, true = anchor_and_true.chunk(2)
            return self._relation_gradient(side, anchor, true, relations.shape[1]) @ relations.t()

        def chunk(anchor: Tensor, true: Tensor) -> Tensor:
            shape = (len(anchor), len(relations), -1)
            anchor, true = (rows[:, None].expand(shape) for rows in (anchor, true))
            rows = relations.expand(shape)
            q, w = self.make_query(side, anchor, rows)
            return self.pair_score(q, w, self.prepare_entities(true, self.candidate_side[side], rows))

        size = max(1, MAX_ELEMENTS // (len(relations) * max(anchor_and_true.shape[1], relations.shape[1])))
        parts = zip(*(torch.split(rows, size) for rows in anchor_and_true.chunk(2)), strict=True)
        return torch.cat([checkpoint(chunk, *p, use_reentrant=False, preserve_rng_state=False) for p in parts])

    def _relation_gradient(self, side: Side, anchor: Tensor, true: Tensor, width: int) -> Tensor:
        """Return the gradient [B, width] of a linear score in a relation's row, which the row is multiplied by."""
        with torch.enable_grad():
            probe = torch.zeros(len(anchor), width, dtype=anchor.dtype, device=anchor.device, requires_grad=True)
            q, w = self.make_query(side, anchor, probe)
            scores = self.pair_score(q, w, self.prepare_entities(true, self.candidate_side[side], probe))
            (gradient,) = torch.autograd.grad(scores.sum(), probe, create_graph=True)
        return gradient

    # --- from ids ---

    def relation_rows(self, relations: Tensor, side: Side) -> Tensor:
        """Return rows of relations for queries of a side, as the maths takes them."""
        return self.relations.gather(relations + self.relation_offset[side])

    def entity_rows(self, ids: Tensor) -> Tensor:
        """Return rows of entities, encoded where the model does so, in the precision they are computed with."""
        return self.entities.gather(ids)

    def as_vectors(self, rows: Tensor) -> Tensor:
        """Return the vectors of rows that people see: as the score uses them, or as stored where relations change them.

        For PairRE that is the row at length 1.
        """
        return rows if self.projects_entities else self.prepare_entities(rows, "head", None)

    def relation_vectors(self, ids: Tensor) -> Tensor:
        """Return the stored rows [N, ·] of relations, each followed by its reciprocal row if there is one."""
        copies = torch.arange(1 + self.reciprocal, device=ids.device) * self.num_relations
        return self.stored["relation"].gather(ids[:, None] + copies).flatten(1)

    def make_queries(self, triples: Tensor, side: Side) -> tuple[Tensor, Query]:
        """Return relation rows and queries of [B, 3] triples; their member on `side` is ignored."""
        relation = self.relations.gather(triples[:, 1] + self.relation_offset[side])
        return relation, self.make_query(side, self.entities.gather(triples[:, 2 - COLUMN[side]]), relation)

    def score(self, triples: Tensor, side: Side = "tail") -> Tensor:
        """Return scores [B] of [B, 3] triples; the side matters if `sides_differ` or relations are reciprocal."""
        relation, query = self.make_queries(triples, side)
        own = self.prepare_entities(self.entity_rows(triples[:, COLUMN[side]]), self.candidate_side[side], relation)
        return backend(own.device.type).score_pairs(self.metric or self.pair_score, *query, own)

    def score_candidates(self, triples: Tensor, side: Side, candidates: Tensor) -> Tensor:
        """Return scores [B, K] of entities put on `side`: candidates [K] for all triples, or [B, K]."""
        relation, query = self.make_queries(triples, side)
        side = self.candidate_side[side]
        if self.projects_entities:
            rows = self.entity_rows(candidates)
            return self._score_projected(side, query, relation, rows[None] if candidates.dim() == 1 else rows)
        if candidates.dim() == 1:
            return self.score_rows(*query, self.prepare_entities(self.entity_rows(candidates), side, None))
        distinct, ids = torch.unique(candidates, return_inverse=True)
        return self.score_rows(*query, self.prepare_entities(self.entity_rows(distinct), side, None), ids)

    def score_all(self, triples: Tensor, side: Side) -> Tensor:
        """Return scores [B, E] of every entity on `side`."""
        scores = torch.zeros(len(triples), self.num_entities, dtype=self.dtype, device=triples.device)
        for part, query, chunks in self.candidate_groups(triples, side, len(triples)):
            for first, rows in chunks():
                scores[part, first : first + len(rows)] = self.score_rows(*query, rows)
        return scores if self.processes is None else self.processes.sum(scores)

    def candidate_groups(
        self, triples: Tensor, side: Side, size: int, ids: Tensor | None = None
    ) -> Iterator[tuple[slice | Tensor, Query, Callable[[], Chunks]]]:
        """Yield groups of at most `size` triples that have the same prepared candidates, and what yields their chunks.

        All triples do, or those of one relation where candidates depend on it. Candidates are all entities, or `ids`;
        what fits into one chunk is prepared once. A group comes with its queries.
        """
        num = self.num_entities if ids is None else len(ids)
        fits = num * self.stored["entity"].width <= 2 * MAX_ELEMENTS
        if self.projects_entities:
            yield from self._groups_by_relation(triples, side, size, ids, fits=fits)
            return
        chunks: Callable[[], Chunks] = partial(self.candidate_chunks, side, None, ids)
        if fits:
            chunks = list(chunks()).__iter__
        for start in range(0, len(triples), size):
            part = slice(start, start + size)
            yield part, self.make_queries(triples[part], side)[1], chunks

    def _groups_by_relation(
        self, triples: Tensor, side: Side, size: int, ids: Tensor | None, *, fits: bool
    ) -> Iterator[tuple[Tensor, Query, Callable[[], Chunks]]]:
        """Yield what `candidate_groups` does: rows that a model encodes are encoded once, not for every relation."""
        rows: Callable[[], Chunks] | None = None
        if fits:
            num = max(1, self.num_entities if ids is None else len(ids))
            rows = list(self.entities.chunks(num) if ids is None else self._chunks_of(ids, num)).__iter__
        order = triples[:, 1].argsort(stable=True)
        ordered = triples[order]
        anchors = ordered[:, 2 - COLUMN[side]]
        in_memory = len(anchors) * self.entities.width <= 2 * MAX_ELEMENTS
        own = self.entities.gather(anchors) if in_memory else None
        relations, counts = torch.unique_consecutive(ordered[:, 1], return_counts=True)
        ends, begin = counts.cumsum(0).tolist(), 0
        at_once = max(1, 2 * MAX_ELEMENTS // self.relations.width)
        for first, end in enumerate(ends):
            if first % at_once == 0:
                relation_rows = self.relation_rows(relations[first : first + at_once], side)
            row = relation_rows[first % at_once]
            chunks: Callable[[], Chunks] = partial(self.candidate_chunks, side, row, ids, rows)
            if fits:
                chunks = list(chunks()).__iter__
            for start in range(begin, end, size):
                part = slice(start, min(start + size, end))
                anchor = self.entities.gather(anchors[part]) if own is None else own[part]
                yield order[part], self.make_query(side, anchor, row.expand(len(anchor), -1)), chunks
            begin = end

    def candidate_chunks(
        self, side: Side, relation: Tensor | None, ids: Tensor | None = None, rows: Callable[[], Chunks] | None = None
    ) -> Chunks:
        """Yield prepared rows of all entities, or of `ids`, in chunks, each with the position of its first row.

        Ids are ascending. Of rows that several processes share, each yields those that it holds. Rows that are to be
        prepared come from `rows` where they are there already.
        """
        if rows is None:
            size = max(1024, 2 * MAX_ELEMENTS // self.stored["entity"].width)
            rows = partial(self.entities.chunks, size) if ids is None else partial(self._chunks_of, ids, size)
        for start, part in rows():
            yield start, self.prepare_entities(part, self.candidate_side[side], relation)

    def _chunks_of(self, ids: Tensor, size: int) -> Chunks:
        """Yield the rows of ids that are held here in chunks, each with the position of its first."""
        for start in range(0, len(ids), size):
            first, rows = self.entities.gather_held(ids[start : start + size])
            if len(rows):
                yield start + first, rows

    def score_tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Return scores [B, E] of every tail of (head, relation)."""
        return self.score_all(torch.stack([heads, relations, heads], 1), "tail")

    def score_heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """Return scores [B, E] of every head of (relation, tail)."""
        return self.score_all(torch.stack([tails, relations, tails], 1), "head")

    def score_relations(self, heads: Tensor, tails: Tensor) -> Tensor:
        """Return scores [B, R] of every relation between head and tail."""
        size, parts = max(1, MAX_ELEMENTS // (self.num_relations * self.stored["relation"].width)), []
        relations = torch.arange(self.num_relations, device=heads.device)
        for h, t in zip(torch.split(heads, size), torch.split(tails, size), strict=True):
            grid = [h.repeat_interleave(len(relations)), relations.repeat(len(h)), t.repeat_interleave(len(relations))]
            parts.append(self.score(torch.stack(grid, 1)).view(len(h), -1))
        return torch.cat(parts)
