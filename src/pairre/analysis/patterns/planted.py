"""Graphs with planted patterns: what a detector ought to find in them is known, at a known rate and amid noise.

Entities come in groups of equal size. A base relation links each member of one group to a member of another, one to one
or three to one; a pattern adds relations that follow from it. `rate` of what a pattern implies is kept, and `noise`
random triples are added for each triple of a relation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from pairre.analysis.patterns.agreement import Pattern
from pairre.graph import SPLITS, Graph, Vocabulary
from pairre.graph.split import distinct, split_triples

Pairs = np.ndarray  # [N, 2] entity ids, head and tail


@dataclass(frozen=True)
class Planted:
    """A graph and the patterns that were put into it."""

    graph: Graph
    patterns: frozenset[Pattern]


def planted_patterns(
    seed: int, *, each: int = 4, group: int = 60, num_groups: int = 6, rate: float = 0.9, noise: float = 0.05
) -> Planted:
    """A graph with `each` instances of every pattern and as many relations that have none."""
    garden = _Garden(np.random.default_rng(seed), group, num_groups, noise)
    add, link, groups = garden.add, garden.link, garden.groups
    found: set[Pattern] = set()
    for i in range(each):
        add(f"plain_{i}", link(*groups(2)), 1.0)
        halves = garden.random.permutation(garden.members(int(garden.random.integers(num_groups)))).reshape(2, -1).T
        found.add(Pattern("symmetry", (add(f"symmetric_{i}", np.concatenate([halves, halves[:, ::-1]]), rate),)))

        pairs = link(*groups(2))
        found.add(Pattern("inverse", (add(f"there_{i}", pairs, 1.0), add(f"back_{i}", pairs[:, ::-1], rate))))

        pairs = link(*groups(2))
        narrow, broad = add(f"narrow_{i}", pairs[: group // 2], 1.0), add(f"broad_{i}", pairs, rate)
        found.add(Pattern("subrelation", (narrow, broad)))

        source, middle, target = groups(3)
        step, onward = link(source, middle), link(middle, target)
        after = dict(onward.tolist())
        whole = np.array([[head, after[tail]] for head, tail in step.tolist()])
        trio = (add(f"step_{i}", step, 1.0), add(f"onward_{i}", onward, 1.0), add(f"whole_{i}", whole, rate))
        found.add(Pattern("composition", trio))
    return Planted(garden.graph(seed), frozenset(found))


class _Garden:
    """Groups of entities, and relations between them as they are added."""

    def __init__(self, random: np.random.Generator, group: int, num_groups: int, noise: float) -> None:
        self.random, self._group, self._num_groups, self._noise = random, group, num_groups, noise
        self._names: list[str] = []
        self._pairs: list[Pairs] = []

    def groups(self, count: int) -> list[int]:
        """Different groups."""
        drawn: list[int] = self.random.choice(self._num_groups, count, replace=False).tolist()
        return drawn

    def members(self, group: int) -> np.ndarray:
        """The entities of a group."""
        return np.arange(group * self._group, (group + 1) * self._group)

    def link(self, source: int, target: int) -> Pairs:
        """Each member of a group with one of another; every other time three share a target."""
        fan = int(self.random.choice((1, 3)))
        targets = self.random.permutation(self.members(target))
        return np.stack([self.members(source), targets[self.random.permutation(self._group) // fan]], 1)

    def add(self, name: str, pairs: Pairs, share: float) -> int:
        """A relation of a share of the pairs, and noise; returns its id."""
        kept = pairs[self.random.random(len(pairs)) < share]
        wrong = self.random.integers(self._group * self._num_groups, size=(round(self._noise * len(kept)), 2))
        self._names.append(name)
        self._pairs.append(np.concatenate([kept, wrong]))
        return len(self._names) - 1

    def graph(self, seed: int) -> Graph:
        """All of it, split."""
        num_entities, num_relations = self._group * self._num_groups, len(self._names)
        parts = [np.insert(pairs, 1, relation, axis=1) for relation, pairs in enumerate(self._pairs)]
        triples = distinct(np.concatenate(parts).astype(np.int32), num_entities, num_relations)
        splits = split_triples(triples, num_entities, num_relations, seed=seed)
        return Graph(
            f"planted-{seed}",
            Vocabulary([f"e{i}" for i in range(num_entities)], "entity"),
            Vocabulary(self._names, "relation"),
            *(torch.from_numpy(splits[s]) for s in SPLITS),
        )
