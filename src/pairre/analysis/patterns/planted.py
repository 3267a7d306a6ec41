"""Generate graphs with planted patterns, for which it is known what a detector should find.

Entities come in groups of equal size. A base relation links each member of one group to a member of another, one to one
or three to one, and a pattern adds relations that it implies. The fraction `rate` of the implied triples is kept, and
`noise` random triples are added for each triple of a relation.
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
    """A graph and the patterns that were planted in it."""

    graph: Graph
    patterns: frozenset[Pattern]


def planted_patterns(
    seed: int, *, each: int = 4, group: int = 60, num_groups: int = 6, rate: float = 0.9, noise: float = 0.05
) -> Planted:
    """Return a graph with `each` instances of every pattern and as many relations without one."""
    builder = _GraphBuilder(np.random.default_rng(seed), group, num_groups, noise)
    add, link, groups = builder.add, builder.link, builder.groups
    planted: set[Pattern] = set()
    for i in range(each):
        add(f"plain_{i}", link(*groups(2)), 1.0)
        halves = builder.random.permutation(builder.members(int(builder.random.integers(num_groups)))).reshape(2, -1).T
        planted.add(Pattern("symmetry", (add(f"symmetric_{i}", np.concatenate([halves, halves[:, ::-1]]), rate),)))

        pairs = link(*groups(2))
        planted.add(Pattern("inverse", (add(f"there_{i}", pairs, 1.0), add(f"back_{i}", pairs[:, ::-1], rate))))

        pairs = link(*groups(2))
        narrow, broad = add(f"narrow_{i}", pairs[: group // 2], 1.0), add(f"broad_{i}", pairs, rate)
        planted.add(Pattern("subrelation", (narrow, broad)))

        source, middle, target = groups(3)
        step, onward = link(source, middle), link(middle, target)
        target_of = dict(onward.tolist())
        whole = np.array([[head, target_of[tail]] for head, tail in step.tolist()])
        trio = (add(f"step_{i}", step, 1.0), add(f"onward_{i}", onward, 1.0), add(f"whole_{i}", whole, rate))
        planted.add(Pattern("composition", trio))
    return Planted(builder.graph(seed), frozenset(planted))


class _GraphBuilder:
    """Collects relations between groups of entities, and makes a graph of them."""

    def __init__(self, random: np.random.Generator, group: int, num_groups: int, noise: float) -> None:
        self.random, self._group, self._num_groups, self._noise = random, group, num_groups, noise
        self._names: list[str] = []
        self._pairs: list[Pairs] = []

    def groups(self, count: int) -> list[int]:
        """Return `count` different groups at random."""
        drawn: list[int] = self.random.choice(self._num_groups, count, replace=False).tolist()
        return drawn

    def members(self, group: int) -> np.ndarray:
        """Return the entities of a group."""
        return np.arange(group * self._group, (group + 1) * self._group)

    def link(self, source: int, target: int) -> Pairs:
        """Return each `source` member paired with a `target` member; at random, one to one or three to one."""
        fan = int(self.random.choice((1, 3)))
        targets = self.random.permutation(self.members(target))
        return np.stack([self.members(source), targets[self.random.permutation(self._group) // fan]], 1)

    def add(self, name: str, pairs: Pairs, rate: float) -> int:
        """Add a relation with the fraction `rate` of the pairs and with noise, and return its id."""
        kept = pairs[self.random.random(len(pairs)) < rate]
        noise = self.random.integers(self._group * self._num_groups, size=(round(self._noise * len(kept)), 2))
        self._names.append(name)
        self._pairs.append(np.concatenate([kept, noise]))
        return len(self._names) - 1

    def graph(self, seed: int) -> Graph:
        """Return all relations as a graph with random splits."""
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
