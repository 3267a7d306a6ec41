"""Answer sets: as many answers to a query as it takes for the true one to be among them with a given probability."""

from __future__ import annotations

from dataclasses import dataclass

from pairre.evaluation.coverage import AnswerCount, answers_needed
from pairre.graph import Side
from pairre.inference.predict import Predictions, predict
from pairre.runs import Run
from pairre.support.errors import PairREError


@dataclass(frozen=True)
class AnswerSet:
    """Answers, best first, and the coverage that they have together."""

    answers: Predictions
    coverage: float
    basis: AnswerCount

    def __str__(self) -> str:
        return describe_coverage(self.coverage, self.basis)


def answer_set(
    run: Run,
    *,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    coverage: float = 0.9,
    any: bool = False,
) -> AnswerSet:
    """Return the best answers to a query, so many that a new true one is among them with probability `coverage`.

    The query is a relation with a head or a tail, and has an answer that the graph lacks. The promise is that of a mean
    over such queries about facts like those of the validation split; see `pairre.evaluation.coverage`. `any` is that of
    `predict`.

    >>> answer_set(run, head="France", relation="borders", coverage=0.9).answers
    """
    if relation is None or (head is None) == (tail is None):
        raise PairREError("coverage: give the relation and either the head or the tail")
    side: Side = "tail" if tail is None else "head"
    basis = answers_needed(run, run.graph.find_relation(relation), side, coverage, any=any)
    answers = predict(run, head=head, relation=relation, tail=tail, k=basis.k, any=any)
    return AnswerSet(answers, coverage, basis)


def describe_coverage(coverage: float, basis: AnswerCount) -> str:
    """Return in words what is promised about the answers to a query."""
    return (
        f"A new true answer is among the best {basis.k:,} with a probability of {coverage:g} or more "
        f"(by {basis.num_ranks:,} validation ranks of {basis.group})."
    )
