"""What all models share, written once: the two tables, and every score derived from a query that meets candidates.

B triples, E entities, R relations, K candidates of each query, D features. A higher score is more plausible, always.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre import ops
from pairre.graph import Side
from pairre.graph.index import COLUMN
from pairre.ops.reference.rows import wide
from pairre.randomness import key, uniform

Query = tuple[Tensor, Tensor]  # q and its scale w, [B, D] each
_BUDGET = 1 << 24  # elements of a temporary


class Model(torch.nn.Module):
    """Two tables and a score; a subclass is its maths: `prepare`, `tail_query`, `head_query` and a `kind` of compare.

    The entity table may be stored in half precision; rows are computed with in float32.
    """

    name: ClassVar[str]
    formula: ClassVar[str]
    kind: ClassVar[ops.Kind]  # how a query meets a candidate
    relation_parts: ClassVar[dict[str, int]]  # names and widths, in multiples of dim

    def __init__(self, num_entities: int, num_relations: int, dim: int, storage: str = "float32") -> None:
        super().__init__()
        self.num_entities, self.num_relations, self.dim = num_entities, num_relations, dim
        self.entity = torch.nn.Parameter(torch.empty(num_entities, dim, dtype=getattr(torch, storage)))
        self.relation = torch.nn.Parameter(torch.empty(num_relations, dim * sum(self.relation_parts.values())))

    def initialise(self, bound: float, seed: int) -> None:
        """Both tables uniform in ±bound, the same on every device."""
        for name, table in self.named_parameters():
            flat, stream = table.detach().view(-1), key(seed, "init", name)
            for start in range(0, len(flat), _BUDGET):
                part = flat[start : start + _BUDGET]
                counter = torch.arange(start, start + len(part), device=part.device)
                part.copy_(uniform(stream, counter).mul_(2 * bound).sub_(bound))

    # --- a model's own maths ---

    def prepare(self, entity: Tensor) -> Tensor:
        """Entity rows as the score uses them."""
        return entity

    def tail_query(self, h: Tensor, r: Any) -> Query:
        """What every candidate tail of (h, r) is compared with."""
        raise NotImplementedError

    def head_query(self, r: Any, t: Tensor) -> Query:
        """What every candidate head of (r, t) is compared with."""
        raise NotImplementedError

    def compare(self, query: Tensor, scale: Tensor, candidates: Tensor, ids: Tensor | None = None) -> Tensor:
        """Scores of queries against all candidate rows, [B, N], or against rows `ids` [B, K]."""
        return ops.compare(self.kind, query, scale, candidates, ids)

    def compare_pairs(self, query: Tensor, scale: Tensor, candidates: Tensor) -> Tensor:
        """Scores [B] of query b against candidate row b."""
        return ops.pairs(self.kind, query, scale, candidates)

    # --- derived: from rows ---

    def parts(self, relation: Tensor) -> SimpleNamespace:
        """Relation rows by the names of their parts."""
        widths = [self.dim * width for width in self.relation_parts.values()]
        return SimpleNamespace(**dict(zip(self.relation_parts, torch.split(relation, widths, dim=-1), strict=True)))

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Query:
        """The query of a side, from prepared rows of the entity that is there and rows of the relation."""
        r = self.parts(relation)
        return self.tail_query(anchor, r) if side == "tail" else self.head_query(r, anchor)

    def batch_scores(
        self, side: Side, entity: Tensor, relation: Tensor, sets: tuple[int, int], place: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Scores [B] of positives and [B, K] of their negatives, from rows as they are stored.

        `entity` holds B rows of anchors, B of the true entities on `side`, then the negatives: so many sets of equal
        size, each for so many positives in a row; or any rows, of which positive b meets place[b].
        """
        size = len(relation)
        anchor, true, others = torch.split(self.prepare(entity), [size, size, len(entity) - 2 * size])
        q, w = self.query(side, anchor, relation)
        num_sets, share = sets
        if num_sets == 1 or place is not None:
            negative = self.compare(q, w, others, place)
        else:
            chunks = zip(torch.split(q, share), torch.split(w, share), others.chunk(num_sets), strict=True)
            negative = torch.cat([self.compare(*chunk) for chunk in chunks])
        return self.compare_pairs(q, w, true), negative

    # --- derived: from ids ---

    def entities(self, ids: Tensor) -> Tensor:
        """Prepared rows of entities."""
        return self.prepare(F.embedding(ids, self.entity).to(wide(self.entity.dtype)))

    def queries(self, triples: Tensor, side: Side) -> Query:
        """Queries of [B, 3] triples whose member on `side` is ignored."""
        anchor = triples[:, 2 - COLUMN[side]]
        return self.query(side, self.entities(anchor), F.embedding(triples[:, 1], self.relation))

    def score(self, triples: Tensor) -> Tensor:
        """Scores [B] of [B, 3] triples."""
        return self.compare_pairs(*self.queries(triples, "tail"), self.entities(triples[:, 2]))

    def score_candidates(self, triples: Tensor, side: Side, candidates: Tensor) -> Tensor:
        """Scores of entities put on `side`: candidates [K] for all triples or [B, K]; the result is [B, K]."""
        rows, ids = torch.unique(candidates, return_inverse=True)
        table = self.entities(rows)
        q, w = self.queries(triples, side)
        if candidates.dim() == 1:
            return self.compare(q, w, F.embedding(ids, table))
        return self.compare(q, w, table, ids)

    def score_all(self, triples: Tensor, side: Side) -> Tensor:
        """Scores [B, E] of every entity on `side`."""
        return self.compare(*self.queries(triples, side), self.prepare(self.entity.to(wide(self.entity.dtype))))

    def score_tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Scores [B, E] of every tail of (head, relation)."""
        return self.score_all(torch.stack([heads, relations, heads], 1), "tail")

    def score_heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """Scores [B, E] of every head of (relation, tail)."""
        return self.score_all(torch.stack([tails, relations, tails], 1), "head")

    def score_relations(self, heads: Tensor, tails: Tensor) -> Tensor:
        """Scores [B, R] of every relation between head and tail."""
        size = max(1, _BUDGET // (self.num_relations * self.dim))
        relations = torch.arange(self.num_relations, device=heads.device)
        parts = []
        for start in range(0, len(heads), size):
            h, t = heads[start : start + size], tails[start : start + size]
            grid = torch.stack(
                [h.repeat_interleave(len(relations)), relations.repeat(len(h)), t.repeat_interleave(len(relations))], 1
            )
            parts.append(self.score(grid).view(len(h), -1))
        return torch.cat(parts)

    def candidate_chunks(self) -> Iterator[tuple[int, Tensor]]:
        """Prepared entity rows in chunks of bounded size, each with the id of its first row."""
        size = max(1024, 2 * _BUDGET // self.dim)
        for start in range(0, self.num_entities, size):
            yield start, self.prepare(self.entity[start : start + size].to(wide(self.entity.dtype)))
