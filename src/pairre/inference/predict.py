"""Answer queries by name: the best tails, heads or relations of a pair, only plausible ones unless all are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor

from pairre.evaluation import ProgressCallback
from pairre.graph import SPLITS, Graph, Layout
from pairre.graph.formats.registry import MEMBERS
from pairre.graph.lookup import FoundTriples, Rows, find_triples
from pairre.inference.answers import Answers, Choice, answer_batches
from pairre.inference.prepared import answer_one
from pairre.runs import Run
from pairre.support.errors import GraphError, PairREError
from pairre.support.table_files import table_file


@dataclass(frozen=True)
class Prediction:
    """One answer to a query or one missing link: a triple by name, its score, and the split that has it, if any.

    `probability` is that of the triple being true where a share `base_rate` of such triples is; both are None for a run
    without a validation split.
    """

    rank: int
    head: str
    relation: str
    tail: str
    score: float
    known: str | None
    probability: float | None = None
    base_rate: float | None = None
    head_label: str | None = None
    relation_label: str | None = None
    tail_label: str | None = None


class Predictions(list[Prediction]):
    """The answers to one query, best first, and what a caller may want to know beside them."""

    triples: Tensor  # [M, 3] int64, the answers by id
    num_implausible: int  # candidates that were left out because they make no sense


def predict(
    run: Run,
    *,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    k: int = 10,
    known: bool = False,
    any: bool = False,
    candidates: Sequence[str] | None = None,
    type: str | None = None,
) -> Predictions:
    """Return the k most plausible triples with two of the three names given, best first.

    Triples that the graph already has are left out, or kept and marked with `known=True`. So are answers that make no
    sense: the query's own entity, unless train has such loops, and entities that `graph.domains` finds implausible on
    that side of the relation. `any=True` keeps them. `candidates` are the only entities that may answer, `type` those
    of one type. A PairREError is raised if a score is not a finite number, because no order of the answers means
    anything then.

    >>> predict(run, head="France", relation="borders", k=3)
    """
    query = find_query(run.graph, head, relation, tail)
    choice = Choice.of(run.graph, k, known, any, candidates, type)
    return _predictions(run.graph, answer_one(run, query.triples[0], choice))[0]


def predict_many(
    run: Run,
    queries: Rows,
    *,
    k: int = 10,
    known: bool = False,
    any: bool = False,
    candidates: Sequence[str] | None = None,
    type: str | None = None,
    layout: Layout | None = None,
    skip_unknown: bool = False,
) -> list[Predictions]:
    """Return the answers to many queries: rows of head, relation and tail, one of which is None or empty, or a file.

    The other arguments are those of `predict`. For more answers than fit into memory, `write_predictions` writes them
    to a file as they come. With `skip_unknown`, queries with a name that the graph lacks are left out.

    >>> predict_many(run, [("France", "borders", None), (None, "capital_of", "Peru")])
    """
    choice = Choice.of(run.graph, k, known, any, candidates, type)
    found = find_queries(run.graph, queries, layout, skip_unknown=skip_unknown)
    return [
        predictions
        for answers in answer_batches(run, found.triples, choice)
        for predictions in _predictions(run.graph, answers)
    ]


def _predictions(graph: Graph, answers: Answers) -> list[Predictions]:
    """Return the answers by id to a batch of queries as named predictions."""
    ranks, scores, splits = (column.tolist() for column in (answers.rank, answers.scores, answers.split))
    p = answers.probabilities
    labels: Iterable[tuple[str | None, str | None, str | None]] = [(None, None, None)] * len(ranks)
    if graph.has_labels:
        labels = graph.labels(answers.triples)
    texts = zip(graph.names(answers.triples), labels, strict=True)
    every = [
        Prediction(rank, *names, score, None if split < 0 else SPLITS[split], probability, answers.base_rate, *shown)
        for rank, (names, shown), score, split, probability in zip(ranks, texts, scores, splits, p, strict=True)
    ]
    start, result = 0, []
    for number, count in zip(answers.num_implausible.tolist(), answers.count.tolist(), strict=True):
        predictions = Predictions(every[start : start + count])
        predictions.triples, predictions.num_implausible = answers.triples[start : start + count], number
        result.append(predictions)
        start += count
    return result


def write_predictions(
    run: Run, queries: FoundTriples, out: Path, choice: Choice, progress: ProgressCallback | None = None
) -> int:
    """Write the answers to queries to a CSV, JSON or Parquet file, whole or not at all; return how many.

    A line says which row of the file of queries it answers. `progress` is called with the number of queries since its
    last call.
    """
    num_answers = 0
    with table_file(out if run.writes else None, _schema(run.graph)) as write:
        for answers in answer_batches(run, queries.triples, choice, progress):
            write(_table(run, queries, answers))
            num_answers += len(answers.query)
    return num_answers


def find_query(graph: Graph, head: str | None, relation: str | None, tail: str | None) -> FoundTriples:
    """Return one query by id, with −1 for the member that is None."""
    if sum(name is None for name in (head, relation, tail)) != 1:
        raise PairREError("give two of head, relation and tail; the third is what is predicted")
    ids = [
        -1 if head is None else graph.find_entity(head),
        -1 if relation is None else graph.find_relation(relation),
        -1 if tail is None else graph.find_entity(tail),
    ]
    return FoundTriples(torch.tensor([ids]), torch.ones(1, dtype=torch.int64))


def find_queries(
    graph: Graph, queries: Rows, layout: Layout | None = None, *, skip_unknown: bool = False
) -> FoundTriples:
    """Return queries by id, with −1 for the member that each leaves open."""
    found = find_triples(graph, queries, layout, skip_unknown=skip_unknown, open_members=True)
    wrong = ((found.triples < 0).sum(1) != 1).nonzero()[:, 0]
    if len(wrong):
        row = int(found.rows[wrong[0]])
        raise GraphError(
            f"{found.source}: row {row}: two of head, relation and tail expected, and the third left empty"
        )
    return found


def _schema(graph: Graph) -> pa.Schema:
    """Return the columns of a file of answers; labels are beside names where the graph has any."""
    labels = [(f"{member}_label", pa.string()) for member in MEMBERS] if graph.has_labels else []
    return pa.schema(
        [
            ("query", pa.int64()),
            ("rank", pa.int64()),
            *((member, pa.string()) for member in MEMBERS),
            *labels,
            ("score", pa.float64()),
            ("probability", pa.float64()),
            ("base_rate", pa.float64()),
            ("known", pa.string()),
        ]
    )


def _table(run: Run, queries: FoundTriples, answers: Answers) -> pa.Table:
    """Return answers as a table with the columns of `_schema`."""
    graph, schema = run.graph, _schema(run.graph)
    vocabularies = (graph.entities, graph.relations, graph.entities)
    columns = {
        "query": queries.rows[answers.query].numpy(),
        "rank": answers.rank.numpy(),
        "score": answers.scores.double().numpy(),
        "probability": pa.array(answers.probabilities, pa.float64()),
        "base_rate": pa.array([answers.base_rate] * len(answers.rank), pa.float64()),
        "known": pa.array([None, *SPLITS]).take(pa.array(answers.split.numpy() + 1)),
    }
    annotations = graph.annotations
    labels = (annotations.entity_labels, annotations.relation_labels, annotations.entity_labels)
    for member, ids, vocabulary, label in zip(MEMBERS, answers.triples.T, vocabularies, labels, strict=True):
        rows = pa.array(ids.numpy())
        columns[member] = vocabulary.names.take(rows).cast(pa.string())
        columns[f"{member}_label"] = pa.nulls(len(rows), pa.string()) if label is None else label.take(rows)
    return pa.table([columns[name] for name in schema.names], schema)
