"""What is asked: search, predictions, scores, links, similar entities, reasons."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from pairre.serve.schemas.common import Answer, Fact, Ref, Side, Split, Triple


class Found(TypedDict):
    """An entity or a relation that a search found, and by what."""

    kind: Literal["entity", "relation"]
    ref: Ref
    num_facts: int
    match: Literal["exact", "prefix", "word", "typo"]


class SearchResults(TypedDict):
    """What a search found, the best first."""

    results: list[Found]


class SimilarEntity(TypedDict):
    """An entity and the cosine of its vector with that of another."""

    entity: Ref
    similarity: float


class SimilarEntities(TypedDict):
    """The entities most similar to one, the most similar first."""

    entity: Ref
    similar: list[SimilarEntity]


class Query(TypedDict):
    """A query; its open member is null."""

    head: Ref | None
    relation: Ref | None
    tail: Ref | None


class Prediction(TypedDict):
    """The answers to a query, best first, and how many candidates were left out because they make no sense."""

    query: Query
    answers: list[Answer]
    num_implausible: int


class Predictions(TypedDict):
    """The answers to several queries, in their order."""

    results: list[Prediction]


class Score(Triple):
    """What the model says of a triple; ranks are among all entities that complete no other known triple."""

    score: float
    head_rank: float
    tail_rank: float
    probability: float | None
    base_rate: float | None
    known: Split | None


class Scores(TypedDict):
    """Scores of triples, in their order."""

    scores: list[Score]


class Links(TypedDict):
    """A page of discovered links, best first; `total` is the number of those on all pages."""

    links: list[Answer]
    page: int
    size: int
    total: int
    relation: Ref | None


class FiringRule(TypedDict):
    """A rule that concludes a triple, and the facts that make it fire: each way is one fact or two."""

    text: str
    kind: str
    confidence: float
    support: int | None
    facts: list[list[Fact]]
    num_ways: int


class Drop(TypedDict):
    """How an answer stands with all facts, and without one."""

    rank_before: int
    rank_after: int
    score_before: float
    score_after: float
    probability_before: float | None
    probability_after: float | None


class NecessaryFact(TypedDict):
    """A fact that an answer depends on; `of` is the end of the answer whose vector was refit without it."""

    fact: Fact
    of: Side
    drop: Drop


class SimilarFact(TypedDict):
    """A known fact of an entity that is similar to the head or the tail of an answer."""

    fact: Fact
    of: Side
    similarity: float


class Reasons(TypedDict):
    """Why an answer is given; its rank is among plausible candidates that are not known."""

    triple: Answer
    side: Side
    rules: list[FiringRule]
    necessary: list[NecessaryFact]
    similar_facts: list[SimilarFact]
