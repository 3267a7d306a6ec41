"""What the pages show: the graph, an entity, what is around it, a relation, metrics."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from pairre.serve.schemas.common import Answer, Counts, Fact, Preparing, Ref, RunSummary, Side, Split, Triple
from pairre.serve.schemas.questions import SimilarEntity


class TypeSample(TypedDict):
    """The entities of a type with the most facts; the type is null for all of a graph without types."""

    type: str | None
    num_entities: int
    entities: list[Ref]


class RankedRelation(TypedDict):
    """A relation and how well its held-out triples are ranked."""

    relation: Ref
    mrr: float
    num_triples: int


class Question(TypedDict):
    """A question to try; the open member is null."""

    text: str
    head: Ref | None
    relation: Ref | None
    tail: Ref | None


class Landing(RunSummary):
    """What a graph is, and where to begin; relations are empty until the metrics are computed."""

    sample_entities: list[TypeSample]
    best_relations: list[RankedRelation]
    worst_relations: list[RankedRelation]
    questions: list[Question]
    preparing: list[Preparing]


class KnownFact(TypedDict):
    """The other entity of a known fact, and the split that has it."""

    entity: Ref
    split: Split


class FactGroup(TypedDict):
    """Facts of an entity with one relation; `side` is the side of the others, and `likely` the best new ones."""

    relation: Ref
    side: Side
    num_facts: int
    facts: list[KnownFact]
    likely: list[Answer]


class EntityPage(TypedDict):
    """What is known of an entity, what is likely, and which entities are similar."""

    entity: Ref
    types: list[str]
    num_facts: int
    num_groups: int
    groups: list[FactGroup]
    similar: list[SimilarEntity]


class Node(TypedDict):
    """An entity of a neighbourhood, and how many facts lie between it and the middle."""

    ref: Ref
    hops: int


class Edge(TypedDict):
    """A known or predicted triple between entities of a neighbourhood, given by their names."""

    head: str
    relation: Ref
    tail: str
    predicted: bool
    probability: float | None


class Neighbourhood(TypedDict):
    """The entities around one, and the triples between them."""

    nodes: list[Node]
    edges: list[Edge]


class MetricValue(TypedDict):
    """A metric, and its 95% interval by a bootstrap over triples where it has one."""

    key: str
    label: str
    value: float
    interval: tuple[float, float] | None
    higher_is_better: bool


class CategoryMetrics(TypedDict):
    """The metrics of the triples of a relation category."""

    category: str
    num_triples: int
    metrics: list[MetricValue]


class ReliabilityBin(TypedDict):
    """Answers of about the same probability: its mean, the share that is true, and their number."""

    probability: float
    true: float
    num_answers: int


class Metrics(TypedDict):
    """How well the run ranks held-out triples, and how far its probabilities are right."""

    run: RunSummary
    split: Split
    num_triples: int
    both: list[MetricValue]
    head: list[MetricValue]
    tail: list[MetricValue]
    by_category: list[CategoryMetrics]
    reliability: list[ReliabilityBin]
    reliability_note: str | None
    base_rate: float | None


class PatternOfRelation(TypedDict):
    """A pattern that a relation is part of: as the vectors agree with it, and as train confirms it."""

    pattern: Literal["symmetry", "inverse", "subrelation", "composition"]
    text: str
    relations: list[Ref]
    confidence: float | None
    agreement: float | None


class Histogram(TypedDict):
    """How many features of a relation's two vectors have a residual between each pair of neighbouring edges."""

    text: str
    edges: list[float]
    counts: list[int]


class WorstError(TypedDict):
    """A held-out triple that is ranked badly on a side, and the entities that are answered instead."""

    triple: Triple
    side: Side
    rank: float
    better: list[Ref]


class RelationPage(TypedDict):
    """What is known of a relation: lists that are still computed are empty, and named in `preparing`."""

    relation: Ref
    category: str
    num_triples: Counts
    num_heads: int
    num_tails: int
    tails_per_head: float
    heads_per_tail: float
    patterns: list[PatternOfRelation]
    histogram: Histogram | None
    metrics: list[MetricValue]
    num_ranked: int
    discovered: list[Answer]
    worst_errors: list[WorstError]
    sample: list[Fact]
    preparing: list[Preparing]
