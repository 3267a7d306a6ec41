"""Search PairRE's vectors for every symmetry, inverse pair, subrelation and composition that holds.

R relations, D features.

The relations of a pattern have entities in common: in an inverse pair, tails of one relation are heads of the other.
Only relations whose entities overlap in the training triples are therefore compared. That leaves about one in a
thousand of the R³ compositions of FB15k, and all of these are computed exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch

from pairre.analysis.patterns.agreement import KINDS, Kind, Pattern, Vectors, agreements, lengths
from pairre.graph import Graph

MIN_OVERLAP = 0.1  # fraction of the smaller of two sets of entities that must be in both
MIN_AGREEMENT: dict[Kind, float] = {"symmetry": 0.81, "inverse": 0.78, "subrelation": 0.73, "composition": 0.77}
MOST_SEARCHED = 2_000  # relations whose pairs are all looked at
_ELEMENTS = 1 << 24  # of a temporary array


class Overlaps(NamedTuple):
    """Which pairs of relations have entities in common, bool [R, R]."""

    heads: np.ndarray  # heads of the first and heads of the second
    tails: np.ndarray  # tails of the first and tails of the second
    chain: np.ndarray  # tails of the first and heads of the second

    @classmethod
    def of(cls, graph: Graph, relations: np.ndarray | None = None) -> Overlaps:
        """Return the overlaps of all or some relations in train, counted over one chunk of entities at a time."""
        triples, num = graph.train.long(), graph.num_relations
        if relations is not None:
            place = torch.full((num,), -1).index_put((torch.from_numpy(relations),), torch.arange(len(relations)))
            num, triples[:, 1] = len(relations), place[triples[:, 1]]
            triples = triples[triples[:, 1] >= 0]
        heads, tails, chain = (torch.zeros(num, num) for _ in range(3))
        size = max(1, _ELEMENTS // num)
        for start in range(0, graph.num_entities, size):
            head, tail = (torch.zeros(min(size, graph.num_entities - start), num) for _ in range(2))
            for ends, column in ((head, 0), (tail, 2)):
                in_chunk = triples[(triples[:, column] >= start) & (triples[:, column] < start + size)]
                ends[in_chunk[:, column] - start, in_chunk[:, 1]] = 1
            heads += head.T @ head
            tails += tail.T @ tail
            chain += tail.T @ head
        sizes = heads.diagonal(), tails.diagonal()
        found = (
            (shared > 0) & (shared >= MIN_OVERLAP * torch.minimum(one[:, None], other[None]))
            for shared, one, other in ((heads, *sizes[:1] * 2), (tails, *sizes[1:] * 2), (chain, sizes[1], sizes[0]))
        )
        return cls(*(shared.numpy() for shared in found))

    @classmethod
    def all(cls, num_relations: int) -> Overlaps:
        """Return overlaps of every relation with every other, so that a search leaves nothing out."""
        return cls(*(np.ones((num_relations, num_relations), np.bool_) for _ in range(3)))


def search(
    vectors: Vectors,
    overlaps: Overlaps,
    min_agreement: Mapping[Kind, float] = MIN_AGREEMENT,
    max_patterns: int = 100_000,
) -> dict[Kind, list[Pattern]]:
    """Return the patterns with at least `min_agreement`, best first, at most `max_patterns` of each kind.

    An inverse pair is listed once, the lower id first, and a subrelation in its better order. A composition that
    implies one of its own relations is left out. Vectors do not tell r1 ∘ r2 from r2 ∘ r1, so the overlaps
    decide the order.
    """
    found: dict[Kind, _Best] = {kind: _Best(kind, min_agreement[kind], max_patterns) for kind in KINDS}
    found["symmetry"].add(symmetries(vectors), np.arange(len(vectors.head))[:, None])
    for kind, relations, scores in _pairs_and_chains(vectors, overlaps):
        found[kind].add(scores, relations)
    return {kind: best.patterns() for kind, best in found.items()}


def search_frequent(vectors: Vectors, graph: Graph, max_patterns: int = 100_000) -> dict[Kind, list[Pattern]]:
    """Return the patterns of the most frequent relations of a graph, at most `MOST_SEARCHED`; see `search`."""
    if graph.num_relations <= MOST_SEARCHED:
        return search(vectors, Overlaps.of(graph), max_patterns=max_patterns)
    frequent = torch.bincount(graph.train[:, 1].long()).argsort(descending=True, stable=True)
    ids = frequent[:MOST_SEARCHED].sort().values.numpy()
    found = search(Vectors(vectors.head[ids], vectors.tail[ids]), Overlaps.of(graph, ids), max_patterns=max_patterns)
    return {
        kind: [Pattern(kind, tuple(ids[list(p.relations)].tolist()), p.score) for p in patterns]
        for kind, patterns in found.items()
    }


def symmetries(vectors: Vectors) -> np.ndarray:
    """Return the agreement [R] of every relation with a symmetry."""
    every = np.arange(len(vectors.head))
    return agreements(vectors, vectors, every, every)


def _pairs_and_chains(vectors: Vectors, overlaps: Overlaps) -> Iterator[tuple[Kind, np.ndarray, np.ndarray]]:
    """Yield (kind, relation ids [N, …], agreements [N]) for the patterns that begin with each relation in turn."""
    swapped = Vectors(vectors.tail, vectors.head)
    num, dim = vectors.head.shape
    every, length = np.arange(num), lengths(vectors)
    for r in range(num):
        others = np.flatnonzero(overlaps.chain[r] & overlaps.chain[:, r] & (every > r))
        first = np.full_like(others, r)
        yield "inverse", np.stack([first, others], 1), agreements(vectors, vectors, first, others)

        others = np.flatnonzero(overlaps.heads[r] & overlaps.tails[r] & (every != r) & (length <= length[r]))
        first = np.full_like(others, r)
        yield "subrelation", np.stack([first, others], 1), agreements(vectors, swapped, first, others)

        seconds = np.flatnonzero(overlaps.chain[r])
        triples, scores = [np.empty((0, 3), np.int64)], [np.empty(0, np.float32)]
        for second in np.array_split(seconds, max(1, len(seconds) * dim // _ELEMENTS)):
            chained = Vectors(vectors.head[r] * vectors.head[second], vectors.tail[r] * vectors.tail[second])
            implied = overlaps.heads[r] & overlaps.tails[second] & (every != r) & (every != second[:, None])
            chain, third = np.nonzero(implied)
            triples.append(np.stack([np.full_like(third, r), second[chain], third], 1))
            scores.append(agreements(chained, swapped, chain, third))
        yield "composition", np.concatenate(triples), np.concatenate(scores)


class _Best:
    """The best patterns of one kind among those added so far, at most `max_patterns`."""

    def __init__(self, kind: Kind, min_agreement: float, max_patterns: int) -> None:
        self._kind, self._min_agreement, self._max_patterns = kind, min_agreement, max_patterns
        self._scores, self._relations = np.empty(0, np.float32), np.empty((0, 1), np.int64)

    def add(self, scores: np.ndarray, relations: np.ndarray) -> None:
        """Add candidates [N]; those that score too low are dropped at once."""
        good = scores >= self._min_agreement
        if good.any():
            self._scores = np.concatenate([self._scores, scores[good]])
            self._relations = np.concatenate([self._relations.reshape(-1, relations.shape[1]), relations[good]])
        if len(self._scores) > 2 * self._max_patterns:
            self._sort()

    def _sort(self) -> None:
        order = np.argsort(-self._scores, kind="stable")[: self._max_patterns]
        self._scores, self._relations = self._scores[order], self._relations[order]

    def patterns(self) -> list[Pattern]:
        """Return the patterns, best first."""
        self._sort()
        rows = zip(self._relations.tolist(), self._scores.tolist(), strict=True)
        return [Pattern(self._kind, tuple(ids), score) for ids, score in rows]
