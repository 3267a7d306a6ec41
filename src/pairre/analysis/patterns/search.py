"""Which patterns hold, by the vectors: every relation, every pair, and every chain of two with what it may imply.

R relations, D features.

A pattern speaks of entities that its relations share, so only relations that meet in the training triples are compared:
where one leads from, the other must lead from or to, as the pattern has it. That leaves about one in a thousand of the
R³ compositions of FB15k, and these are all computed: nothing is approximated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from pairre.analysis.patterns.agreement import KINDS, Kind, Pattern, Vectors, agreements, lengths
from pairre.graph import Graph

MEET = 0.1  # share of the smaller set of entities that two sets must have in common
HOLDS: dict[Kind, float] = {"symmetry": 0.81, "inverse": 0.78, "subrelation": 0.73, "composition": 0.77}
_ELEMENTS = 1 << 24  # of a temporary


class Meets(NamedTuple):
    """Which relations have entities in common, bool [R, R]."""

    heads: np.ndarray  # heads of one with heads of the other
    tails: np.ndarray  # tails with tails
    chain: np.ndarray  # tails of one with heads of the other

    @classmethod
    def of(cls, graph: Graph) -> Meets:
        """Over the training triples, a chunk of entities at a time."""
        num = graph.num_relations
        heads, tails, chain = (torch.zeros(num, num) for _ in range(3))
        triples = graph.train.long()
        size = max(1, _ELEMENTS // num)
        for start in range(0, graph.num_entities, size):
            head, tail = (torch.zeros(min(size, graph.num_entities - start), num) for _ in range(2))
            for ends, column in ((head, 0), (tail, 2)):
                near = triples[(triples[:, column] >= start) & (triples[:, column] < start + size)]
                ends[near[:, column] - start, near[:, 1]] = 1
            heads += head.T @ head
            tails += tail.T @ tail
            chain += tail.T @ head
        sizes = heads.diagonal(), tails.diagonal()
        found = (
            (shared > 0) & (shared >= MEET * torch.minimum(one[:, None], other[None]))
            for shared, one, other in ((heads, *sizes[:1] * 2), (tails, *sizes[1:] * 2), (chain, sizes[1], sizes[0]))
        )
        return cls(*(shared.numpy() for shared in found))

    @classmethod
    def all(cls, num_relations: int) -> Meets:
        """As if every relation met every other."""
        return cls(*(np.ones((num_relations, num_relations), np.bool_) for _ in range(3)))


def search(
    vectors: Vectors,
    meets: Meets,
    least: dict[Kind, float] = HOLDS,
    most: int = 100_000,
) -> dict[Kind, list[Pattern]]:
    """The patterns whose agreement is `least` or more, best first, at most so many of each kind.

    An inverse pair is given once, the lower id first, and a subrelation in its better order. A composition that implies
    one of its own relations is left out; which relation comes first the triples say, as vectors cannot.
    """
    found: dict[Kind, _Best] = {kind: _Best(kind, least[kind], most) for kind in KINDS}
    found["symmetry"].add(symmetries(vectors), np.arange(len(vectors.head))[:, None])
    for kind, relations, scores in _pairs_and_chains(vectors, meets):
        found[kind].add(scores, relations)
    return {kind: best.patterns() for kind, best in found.items()}


def symmetries(vectors: Vectors) -> np.ndarray:
    """The agreement of every relation with being symmetric, [R]."""
    every = np.arange(len(vectors.head))
    return agreements(vectors, vectors, every, every)


def _pairs_and_chains(vectors: Vectors, meets: Meets) -> Iterator[tuple[Kind, np.ndarray, np.ndarray]]:
    """All that begins with one relation at a time: (kind, relations [N, …], agreements [N])."""
    turned = Vectors(vectors.tail, vectors.head)
    num, dim = vectors.head.shape
    every, length = np.arange(num), lengths(vectors)
    for r in range(num):
        others = np.flatnonzero(meets.chain[r] & meets.chain[:, r] & (every > r))
        one = np.full_like(others, r)
        yield "inverse", np.stack([one, others], 1), agreements(vectors, vectors, one, others)

        others = np.flatnonzero(meets.heads[r] & meets.tails[r] & (every != r) & (length <= length[r]))
        one = np.full_like(others, r)
        yield "subrelation", np.stack([one, others], 1), agreements(vectors, turned, one, others)

        seconds = np.flatnonzero(meets.chain[r])
        whole, scores = [np.empty((0, 3), np.int64)], [np.empty(0, np.float32)]
        for second in np.array_split(seconds, max(1, len(seconds) * dim // _ELEMENTS)):
            chained = Vectors(vectors.head[r] * vectors.head[second], vectors.tail[r] * vectors.tail[second])
            implied = meets.heads[r] & meets.tails[second] & (every != r) & (every != second[:, None])
            place, third = np.nonzero(implied)
            whole.append(np.stack([np.full_like(third, r), second[place], third], 1))
            scores.append(agreements(chained, turned, place, third))
        yield "composition", np.concatenate(whole), np.concatenate(scores)


class _Best:
    """The best of what is added, no more than so many."""

    def __init__(self, kind: Kind, least: float, most: int) -> None:
        self._kind, self._least, self._most = kind, least, most
        self._scores, self._relations = np.empty(0, np.float32), np.empty((0, 1), np.int64)

    def add(self, scores: np.ndarray, relations: np.ndarray) -> None:
        """Keep those that belong to the best so far."""
        good = scores >= self._least
        if good.any():
            self._scores = np.concatenate([self._scores, scores[good]])
            self._relations = np.concatenate([self._relations.reshape(-1, relations.shape[1]), relations[good]])
        if len(self._scores) > 2 * self._most:
            self._sort()

    def _sort(self) -> None:
        order = np.argsort(-self._scores, kind="stable")[: self._most]
        self._scores, self._relations = self._scores[order], self._relations[order]

    def patterns(self) -> list[Pattern]:
        """Best first."""
        self._sort()
        rows = zip(self._relations.tolist(), self._scores.tolist(), strict=True)
        return [Pattern(self._kind, tuple(ids), score) for ids, score in rows]
