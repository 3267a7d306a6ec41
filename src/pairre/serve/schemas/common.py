"""What every answer is made of: entities, triples, runs, errors."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict  # that of `typing` is not enough for Pydantic before Python 3.12

Split = Literal["train", "valid", "test"]
Side = Literal["head", "tail"]
Part = Literal["metrics", "patterns", "links"]


class Ref(TypedDict):
    """An entity or a relation: its exact name, what people read, its label and the first of its types."""

    name: str
    shown: str
    label: str | None
    type: str | None


class Triple(TypedDict):
    """A triple."""

    head: Ref
    relation: Ref
    tail: Ref


class Fact(Triple):
    """A triple that a split of the graph has."""

    split: Split | None


class Answer(Triple):
    """A triple that the model predicts.

    `probability` is that of it being true where a share `base_rate` of such triples is, null for an entity that came
    after the training; `known` is the split that has it.
    """

    rank: int
    score: float
    probability: float | None
    base_rate: float | None
    known: Split | None


class Counts(TypedDict):
    """Numbers of triples by split."""

    train: int
    valid: int
    test: int


class RunSummary(TypedDict):
    """A run, its graph and its size."""

    name: str
    graph: str
    model: str
    features: int
    num_entities: int
    num_relations: int
    num_triples: Counts
    mrr: float | None


class Runs(TypedDict):
    """The runs that are served, and the one that the page opens."""

    runs: list[RunSummary]
    default: str
    version: str


class Preparing(TypedDict):
    """A part of the answers that is still computed in the background, and the fraction that is done."""

    part: Part
    done: float


class ErrorBody(TypedDict):
    """What went wrong, in one line; names to try instead where there are any."""

    code: str
    message: str
    suggestions: list[str]


class ErrorAnswer(TypedDict):
    """An error."""

    error: ErrorBody


class Health(TypedDict):
    """Whether the process lives, or answers questions."""

    status: Literal["ok", "starting"]
