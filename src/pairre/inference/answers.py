"""Answer queries by id: which candidates make sense, the best of them, and how many were left out.

B queries, M answers of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pairre.evaluation import ProgressCallback, calibration_of
from pairre.evaluation.topk import Best, best_entities, best_relations
from pairre.graph import Graph, Side
from pairre.graph.index import COLUMN
from pairre.runs import Run
from pairre.support.errors import PairREError

_SIDES: tuple[Side, ...] = ("head", "relation", "tail")
_MAX_ANSWERS = 1 << 20  # held at a time
_MAX_BATCH = 1 << 16  # queries answered together
_MAX_MASK = 1 << 24  # pairs of a query and a relation held at a time


@dataclass(frozen=True)
class Choice:
    """Which candidates a query has, and how many answers: what `predict` and `predict_many` take beside queries."""

    k: int = 10
    known: bool = False  # keep answers that the graph has
    any: bool = False  # keep answers that make no sense
    entities: Tensor | None = None  # ids, ascending; None means all entities

    @classmethod
    def of(
        cls, graph: Graph, k: int, known: bool, any: bool, candidates: Sequence[str] | None, type: str | None
    ) -> Choice:
        """Return the choice that names describe."""
        if k < 1:
            raise PairREError(f"k must be 1 or more, not {k}")
        entities = None
        if candidates is not None:
            entities = torch.tensor(sorted({graph.find_entity(name) for name in candidates}), dtype=torch.int64)
            if not len(entities):
                raise PairREError("no candidates: at least one entity expected")
        if type is not None:
            members = _entities_of_type(graph, type)
            entities = members if entities is None else entities[torch.isin(entities, members)]
        return cls(k, known, any, entities)


@dataclass(frozen=True)
class Answers:
    """The answers to a batch of B queries by id, in the order of queries and ranks."""

    query: Tensor  # [M] int64 position of the query among all
    rank: Tensor  # [M] int64, from 1
    triples: Tensor  # [M, 3] int64
    scores: Tensor  # [M]
    probabilities: list[float | None]  # [M], None where nothing is fitted for a triple
    base_rate: float | None  # that these refer to
    split: Tensor  # [M] int8 position in SPLITS of the split that has the triple, or −1
    count: Tensor  # [B] int64 answers of each query
    num_implausible: Tensor  # [B] int64 candidates of each query that were left out because they make no sense


def _entities_of_type(graph: Graph, type: str) -> Tensor:
    """Return the ids, ascending, of the entities of a type."""
    if graph.entity_types is None:
        raise PairREError(f"{graph.name}: no types of entities are known; `pairre train --types FILE` reads them")
    return graph.entity_types.members(graph.type_names.find(type)).long()


def answer_batches(
    run: Run, queries: Tensor, choice: Choice, progress: ProgressCallback | None = None
) -> Iterator[Answers]:
    """Yield the answers to [N, 3] queries, whose open member is −1, batch by batch, so that memory is bounded."""
    size = max(1, min(_MAX_BATCH, _MAX_ANSWERS // choice.k))
    for start in range(0, len(queries), size):
        answers = answer(run, queries[start : start + size], choice, progress)
        yield replace(answers, query=answers.query + start)


def answer(run: Run, queries: Tensor, choice: Choice, progress: ProgressCallback | None = None) -> Answers:
    """Return the answers to [B, 3] queries whose open member is −1; queries that share candidates go together."""
    width = min(choice.k, max(run.model.num_entities, run.model.num_relations))
    ids = torch.full((len(queries), width), -1)
    scores = torch.full((len(queries), width), -torch.inf)
    num_implausible = torch.zeros(len(queries), dtype=torch.int64)
    for side in _SIDES:
        rows = (queries[:, COLUMN[side]] < 0).nonzero()[:, 0]
        for part in _groups(queries, rows, side, choice, run.model.num_relations):
            if side == "relation":
                best, num_implausible[part] = _answer_relations(run, queries[part], choice, progress)
            else:
                best, num_implausible[part] = _answer_entities(run, queries[part], side, choice, progress)
            if best.num_lost:
                raise not_finite(best.num_lost)
            ids[part, : best.ids.shape[1]] = best.ids
            scores[part, : best.ids.shape[1]] = best.scores
    query, column = (ids >= 0).nonzero().unbind(1)
    triples = torch.where(queries[query] < 0, ids[query, column, None], queries[query])
    scores = scores[query, column]
    calibration, base_rate, probabilities = run.calibration, None, list[float | None]([None] * len(query))
    if calibration is None and len(run.graph.valid):
        calibration = calibration_of(run)  # fitted now
    if calibration is not None:
        probabilities, base_rate = calibration.of_triples(scores, triples), calibration.base_rate
    split = run.graph.split_of(triples) if choice.known else torch.full((len(query),), -1, dtype=torch.int8)
    numbers = (ids >= 0).sum(1), num_implausible
    return Answers(query, column + 1, triples, scores, probabilities, base_rate, split, *numbers)


def not_finite(num_lost: int) -> PairREError:
    """Return the error that so many scores are not finite numbers."""
    return PairREError(
        f"{num_lost:,} scores are not finite numbers, so they cannot be compared; the weights have diverged: "
        "train again with a smaller train.lr"
    )


def _groups(queries: Tensor, rows: Tensor, side: Side, choice: Choice, num_relations: int) -> Iterator[Tensor]:
    """Yield the rows of queries that share candidates: all, or those of one relation."""
    if len(rows) == 0:
        return
    if side == "relation":
        yield from torch.split(rows, max(1, _MAX_MASK // num_relations))
    elif choice.any:
        yield rows
    else:
        order = queries[rows, 1].argsort(stable=True)
        yield from torch.split(rows[order], torch.unique(queries[rows, 1], return_counts=True)[1].tolist())


def _answer_entities(
    run: Run, queries: Tensor, side: Side, choice: Choice, progress: ProgressCallback | None
) -> tuple[Best, Tensor]:
    """Return the best entities of queries that share candidates, and how many were implausible."""
    graph, candidates = run.graph, choice.entities
    num_implausible = torch.zeros(len(queries), dtype=torch.int64)
    without_own = False
    if not choice.any:
        relation = int(queries[0, 1])
        plausible, own = graph.domains.plausible(relation, side), queries[:, 2 - COLUMN[side]]
        num_all = graph.num_entities if candidates is None else len(candidates)
        candidates = plausible if candidates is None else plausible[torch.isin(plausible, candidates)]
        without_own = not graph.domains.has_loops(relation)
        num_implausible += num_all - len(candidates)
        num_implausible += torch.isin(own, candidates) if without_own else 0
    excluded: dict[str, Any] = {"known": None if choice.known else graph.known, "without_own": without_own}
    best = best_entities(run.model, queries, side, choice.k, candidates=candidates, progress=progress, **excluded)
    return best, num_implausible


def _answer_relations(
    run: Run, queries: Tensor, choice: Choice, progress: ProgressCallback | None
) -> tuple[Best, Tensor]:
    """Return the best relations of queries, and how many were implausible."""
    graph, allowed = run.graph, None
    if choice.entities is not None:
        raise PairREError("candidates are entities, and what a query of head and tail asks for is a relation")
    num_implausible = torch.zeros(len(queries), dtype=torch.int64)
    if not choice.any:
        allowed = torch.ones(len(queries), graph.num_relations, dtype=torch.bool)
        loops = queries[:, 0] == queries[:, 2]
        for relation in range(graph.num_relations):
            for end in ("head", "tail"):
                rows = allowed[:, relation].nonzero()[:, 0]  # a second look only at those that the first end allows
                if len(rows):
                    allowed[rows, relation] = graph.domains.allows(relation, end, queries[rows, COLUMN[end]])
            if not graph.domains.has_loops(relation):
                allowed[loops, relation] = False
        num_implausible = graph.num_relations - allowed.sum(1)
    known = None if choice.known else graph.known
    return best_relations(
        run.model, queries, choice.k, allowed=allowed, known=known, progress=progress
    ), num_implausible
