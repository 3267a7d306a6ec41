"""Statistics of a graph: sizes, repeated and shared triples, unseen names, and the categories of relations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from pairre.graph.graph import SPLITS, Graph, Split
from pairre.graph.split import distinct

CATEGORIES = ("1-1", "1-N", "N-1", "N-N")
NUM_EXAMPLES = 3
MANY = 1.5  # mean number of entities from which a side of a relation counts as "N"


@dataclass(frozen=True)
class RelationStatistics:
    """The statistics of one relation in train; `shown` is its name as a person reads it."""

    name: str
    shown: str
    num_triples: int
    tails_per_head: float
    heads_per_tail: float
    category: str


@dataclass(frozen=True)
class GraphStatistics:
    """The statistics that `pairre stats` shows."""

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
    skipped: dict[str, int]  # what was not read → triples
    num_labelled: dict[str, int]  # entities, relations
    num_types: int
    num_typed_entities: int
    leakage: dict[str, dict[str, Any]]
    examples: list[tuple[str, str, str]]  # the first triples of train, to see whether they were read rightly
    weights: dict[str, float]  # smallest, mean and largest weight in train; empty without weights

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can represent."""
        return asdict(self)


def relation_means(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """Return distinct train triples, tails per head and heads per tail of each relation, [R] each.

    All three are 0 for a relation that does not occur in train.
    """
    triples = torch.from_numpy(distinct(graph.train.numpy(), graph.num_entities, graph.num_relations)).long()
    num = torch.bincount(triples[:, 1], minlength=graph.num_relations)
    means = []
    for column in (0, 2):
        pairs = torch.unique(triples[:, 1] * graph.num_entities + triples[:, column])
        num_ends = torch.bincount(pairs // graph.num_entities, minlength=graph.num_relations)
        means.append(num.double() / num_ends.clamp(min=1))
    return num, means[0], means[1]


def relation_categories(graph: Graph) -> list[str]:
    """Return the category of each relation by id; "1-N" means one head and many tails."""
    _, tails_per_head, heads_per_tail = relation_means(graph)
    return [
        f"{'N' if heads >= MANY else '1'}-{'N' if tails >= MANY else '1'}"
        for tails, heads in zip(tails_per_head.tolist(), heads_per_tail.tolist(), strict=True)
    ]


def graph_statistics(graph: Graph) -> GraphStatistics:
    """Return the statistics of a graph; relations are sorted by their number of triples in train."""
    unique = {split: distinct(graph.split(split).numpy(), graph.num_entities, graph.num_relations) for split in SPLITS}
    train_entities, train_relations = torch.unique(graph.train[:, [0, 2]]), torch.unique(graph.train[:, 1])
    held_out: tuple[Split, ...] = ("valid", "test")
    relations, types = _relation_statistics(graph), graph.entity_types
    return GraphStatistics(
        name=graph.name,
        num_entities=graph.num_entities,
        num_relations=graph.num_relations,
        num_triples={split: len(graph.split(split)) for split in SPLITS},
        num_duplicates={split: len(graph.split(split)) - len(unique[split]) for split in SPLITS},
        num_shared={
            f"{one}-{other}": _num_shared(graph, unique[one], unique[other]) for one, other in combinations(SPLITS, 2)
        },
        num_unseen_entities={s: _num_unseen(graph.split(s)[:, [0, 2]], train_entities) for s in held_out},
        num_unseen_relations={s: _num_unseen(graph.split(s)[:, 1], train_relations) for s in held_out},
        categories={
            category: {
                "relations": sum(r.category == category for r in relations),
                "triples": sum(r.num_triples for r in relations if r.category == category),
            }
            for category in CATEGORIES
        },
        relations=relations,
        skipped=dict(graph.annotations.skipped),
        num_labelled={
            "entities": _num_labels(graph.annotations.entity_labels),
            "relations": _num_labels(graph.annotations.relation_labels),
        },
        num_types=len(types.names) if types else 0,
        num_typed_entities=len(torch.unique(types.entities)) if types else 0,
        leakage=graph.leakage,
        examples=list(graph.names(graph.train[:NUM_EXAMPLES])),
        weights=_weight_statistics(graph),
    )


def _num_labels(labels: pa.Array | None) -> int:
    return 0 if labels is None else len(labels) - int(labels.null_count)


def _weight_statistics(graph: Graph) -> dict[str, float]:
    weights = graph.weights.get("train", torch.empty(0)).double()
    if not len(weights):
        return {}
    return {"min": float(weights.min()), "mean": float(weights.mean()), "max": float(weights.max())}


def _num_shared(graph: Graph, one: np.ndarray, other: np.ndarray) -> int:
    """Return how many triples two sets of distinct triples have in common."""
    both = np.concatenate([one, other])
    return len(both) - len(distinct(both, graph.num_entities, graph.num_relations))


def _num_unseen(ids: Tensor, seen: Tensor) -> int:
    """Return how many distinct ids are not among the seen ones."""
    return int((~torch.isin(torch.unique(ids), seen)).sum())


def _relation_statistics(graph: Graph) -> list[RelationStatistics]:
    num_triples, tails_per_head, heads_per_tail = relation_means(graph)
    categories = relation_categories(graph)
    return [
        RelationStatistics(
            graph.relations[i],
            graph.show_relation(i),
            int(num_triples[i]),
            float(tails_per_head[i]),
            float(heads_per_tail[i]),
            categories[i],
        )
        for i in num_triples.argsort(descending=True, stable=True).tolist()
    ]
