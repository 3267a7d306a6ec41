"""What a graph is like: sizes, faults and relation categories, counted once for `stats`, evaluation and reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from pairre.graph.graph import SPLITS, Graph
from pairre.graph.split import distinct

CATEGORIES = ("1-1", "1-N", "N-1", "N-N")
MANY = 1.5  # from here up, a side of a relation counts as "N"


@dataclass(frozen=True)
class RelationStatistics:
    """One relation over train."""

    name: str
    num_triples: int
    tails_per_head: float
    heads_per_tail: float
    category: str


@dataclass(frozen=True)
class GraphStatistics:
    """Everything `pairre stats` shows; `as_dict` is its JSON."""

    name: str
    num_entities: int
    num_relations: int
    num_triples: dict[str, int]
    num_duplicates: dict[str, int]
    num_shared: dict[str, int]
    num_unseen_entities: dict[str, int]
    num_unseen_relations: dict[str, int]
    categories: dict[str, dict[str, int]]
    relations: list[RelationStatistics]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def relation_means(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """For each relation: distinct train triples, tails per head, heads per tail (0 where it never occurs in train)."""
    triples = torch.from_numpy(distinct(graph.train.numpy(), graph.num_entities, graph.num_relations)).long()
    num = torch.bincount(triples[:, 1], minlength=graph.num_relations)
    means = []
    for column in (0, 2):
        pairs = torch.unique(triples[:, 1] * graph.num_entities + triples[:, column])
        num_ends = torch.bincount(pairs // graph.num_entities, minlength=graph.num_relations)
        means.append(num.double() / num_ends.clamp(min=1))
    return num, means[0], means[1]


def relation_categories(graph: Graph) -> list[str]:
    """The category of each relation, by id: the first letter is the head side, as in "1-N" (one head, many tails)."""
    _, tails_per_head, heads_per_tail = relation_means(graph)
    return [
        f"{'N' if heads >= MANY else '1'}-{'N' if tails >= MANY else '1'}"
        for tails, heads in zip(tails_per_head.tolist(), heads_per_tail.tolist(), strict=True)
    ]


def graph_statistics(graph: Graph) -> GraphStatistics:
    """Count everything."""
    num_entities, num_relations = graph.num_entities, graph.num_relations
    unique = {s: distinct(graph.split(s).numpy(), num_entities, num_relations) for s in SPLITS}
    shared = {}
    for i, one in enumerate(SPLITS):
        for other in SPLITS[i + 1 :]:
            both = torch.cat([torch.from_numpy(unique[one]), torch.from_numpy(unique[other])]).numpy()
            shared[f"{one}-{other}"] = len(both) - len(distinct(both, num_entities, num_relations))
    train_entities = torch.unique(graph.train[:, [0, 2]])
    train_relations = torch.unique(graph.train[:, 1])
    unseen_entities, unseen_relations = {}, {}
    for split in ("valid", "test"):
        triples = graph.split(split)
        unseen_entities[split] = int((~torch.isin(torch.unique(triples[:, [0, 2]]), train_entities)).sum())
        unseen_relations[split] = int((~torch.isin(torch.unique(triples[:, 1]), train_relations)).sum())

    num, tails_per_head, heads_per_tail = relation_means(graph)
    names = relation_categories(graph)
    relations = [
        RelationStatistics(
            graph.relations[i], int(num[i]), float(tails_per_head[i]), float(heads_per_tail[i]), names[i]
        )
        for i in num.argsort(descending=True, stable=True).tolist()
    ]
    categories = {
        c: {
            "relations": sum(r.category == c for r in relations),
            "triples": sum(r.num_triples for r in relations if r.category == c),
        }
        for c in CATEGORIES
    }
    return GraphStatistics(
        name=graph.name,
        num_entities=num_entities,
        num_relations=num_relations,
        num_triples={s: len(graph.split(s)) for s in SPLITS},
        num_duplicates={s: len(graph.split(s)) - len(unique[s]) for s in SPLITS},
        num_shared=shared,
        num_unseen_entities=unseen_entities,
        num_unseen_relations=unseen_relations,
        categories=categories,
        relations=relations,
    )
