"""Leakage: how many triples of a held-out split follow almost directly from train, so that ranking them is no test.

A held-out triple (h, r, t) leaks in one of three ways:

- exact: train has (h, r, t) itself;
- inverse: train has (t, r', h), and r' is nearly an inverse of r, or r' is r and r is nearly symmetric;
- equivalent: train has (h, r', t), r' is another relation, and the two have nearly the same pairs of entities.

"Nearly" is measured on train alone. The pairs (h, t) of r and the pairs of r', turned round for an inverse, must have
at least `MIN_SHARED` pairs in common, and these must be at least the fraction `MIN_OVERLAP` of the pairs of r and of
those of r'. Akrami et al. (SIGMOD 2020) use 0.8 on whole graphs; train lacks the triples that were held out, so the
threshold is lower here. A triple may leak in several ways; in `any` it counts once.

Beside these, `linked` counts the triples whose two entities have a triple in train at all, in either direction and of
any relation. That is the figure of Toutanova and Chen (2015), 81% for FB15k.

N triples of train, M matches, Q queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from pairre.graph.graph import Graph, Split
from pairre.graph.split import distinct

MIN_OVERLAP = 0.5
MIN_SHARED = 5
NOTEWORTHY = 0.01  # fraction of a split from which leaks by inverse or equivalent relations are warned of
MAX_TRIPLES = 20_000_000  # of train; a larger graph is not examined, because that would take minutes
MAX_TRIPLES_ON_DISK = 5_000_000  # of a graph that need not fit into memory, as this examination must
MAX_MATCHES = 1 << 28  # pairs of train triples between the same entities; more are not examined, either
_PART = 1 << 23  # matches that are held at a time


def leakage(graph: Graph, split: Split = "test") -> dict[str, Any]:
    """Return how many triples of a split leak, by way, and `fraction`, that of the split which leaks in `any` way.

    `linked` and `linked_fraction` count the triples whose entities are linked in train at all. A graph that is too
    large to be examined has the key `skipped` instead, with the reason.
    """
    limit = MAX_TRIPLES_ON_DISK if graph.stored else MAX_TRIPLES
    if len(graph.train) > limit:
        return {"skipped": f"train has {len(graph.train):,} triples, and at most {limit:,} are examined"}
    pairs = _Pairs(distinct(graph.train.numpy(), graph.num_entities, graph.num_relations), graph.num_entities)
    triples = graph.split(split).numpy()
    key, turned, relation = pairs.keys(triples), pairs.keys(triples[:, ::-1]), triples[:, 1].astype(np.int64)
    if max(pairs.num_matches(pairs.key), pairs.num_matches(pairs.turned_key)) > MAX_MATCHES:
        return {"skipped": f"more than {MAX_MATCHES:,} pairs of train triples are between the same entities"}
    leaks = {"exact": np.zeros(len(triples), np.bool_)}
    for row, found in pairs.matches(key):
        leaks["exact"][row[pairs.relation[found] == relation[row]]] = True
    for way, queries, train_queries in (("inverse", turned, pairs.turned_key), ("equivalent", key, pairs.key)):
        similar = pairs.similar_relations(train_queries, with_itself=way == "inverse")
        leaks[way] = np.zeros(len(triples), np.bool_)
        for row, found in pairs.matches(queries):
            leaks[way][row[np.isin(pairs.relation_pair(relation[row], pairs.relation[found]), similar)]] = True
    leaks["any"] = np.logical_or.reduce(list(leaks.values()))
    linked = np.isin(key, pairs.key) | np.isin(turned, pairs.key)
    size = max(1, len(triples))
    return {
        "num_triples": len(triples),
        **{way: int(which.sum()) for way, which in leaks.items()},
        "fraction": float(leaks["any"].sum() / size),
        "linked": int(linked.sum()),
        "linked_fraction": float(linked.sum() / size),
    }


class _Pairs:
    """The triples of train, sorted by their ordered pair of entities."""

    def __init__(self, train: np.ndarray, num_entities: int) -> None:
        self._num_entities = num_entities
        key = self.keys(train)
        order = np.argsort(key, kind="stable")
        self.key, self.turned_key = key[order], self.keys(train[order][:, ::-1])  # [N] both
        self.relation = train[order, 1].astype(np.int64)  # [N]
        self._sizes = np.bincount(self.relation, minlength=1)

    def keys(self, triples: np.ndarray) -> np.ndarray:
        """Return the pair of head and tail of triples [Q, 3] as one number each."""
        key: np.ndarray = triples[:, 0].astype(np.int64) * self._num_entities + triples[:, 2]
        return key

    def relation_pair(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return two relations as one number."""
        both: np.ndarray = one * (1 << 31) + other
        return both

    def _ranges(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        begin = np.searchsorted(self.key, queries)
        return begin, np.searchsorted(self.key, queries, "right") - begin

    def num_matches(self, queries: np.ndarray) -> int:
        """Return how many triples of train have the pairs of the queries, counted by query."""
        return int(self._ranges(queries)[1].sum())

    def matches(self, queries: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (position of the query, position in train), [M] both, for all triples of train with their pairs."""
        begin, length = self._ranges(queries)
        before = np.cumsum(length) - length
        edges = np.searchsorted(before, np.arange(0, length.sum() + _PART, _PART)).tolist()
        for start, stop in pairwise(edges):
            part = length[start:stop]
            row = np.repeat(np.arange(start, stop), part)
            within = np.arange(len(row)) - np.repeat(np.cumsum(part) - part, part)
            yield row, begin[row] + within

    def similar_relations(self, queries: np.ndarray, with_itself: bool) -> np.ndarray:
        """Return the pairs of relations with nearly the same pairs of entities, `queries` being those of train."""
        counted = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for row, found in self.matches(queries):
            both = self.relation_pair(self.relation[row], self.relation[found])
            counted.append(np.unique(both, return_counts=True))
        both, position = np.unique(np.concatenate([pairs for pairs, _ in counted]), return_inverse=True)
        shared = np.bincount(position, np.concatenate([counts for _, counts in counted]), minlength=len(both))
        one, other = both >> 31, both & ((1 << 31) - 1)
        largest = np.maximum(self._sizes[one], self._sizes[other]) if len(both) else shared
        similar = (shared >= MIN_SHARED) & (shared >= MIN_OVERLAP * largest)
        return np.asarray(both[similar if with_itself else similar & (one != other)])


def describe_leakage(found: dict[str, Any], split: str) -> str:
    """Return one line about leakage, or an empty text if hardly anything leaks or the graph was not examined."""
    if "exact" not in found or not (found["exact"] or found["fraction"] >= NOTEWORTHY):
        return ""
    ways = {
        "exact": "are in train",
        "inverse": "are there reversed, by an inverse or symmetric relation",
        "equivalent": "are there by an equivalent relation",
    }
    said = ", ".join(f"{found[way]:,} {words}" for way, words in ways.items() if found[way])
    return f"{found['fraction']:.1%} of the {found['num_triples']:,} {split} triples follow from train: {said}"
