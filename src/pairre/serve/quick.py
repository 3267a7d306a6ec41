"""Answers to queries of prepared runs, which is what a server is asked most."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pairre.evaluation import calibration_of
from pairre.graph import SPLITS
from pairre.inference.answers import Choice
from pairre.inference.prepared import MAX_ANSWERS, Found
from pairre.serve.schemas import Answer, Prediction, Split
from pairre.serve.state import RunState

Ids = tuple[int, int, int]  # a query, whose open member is −1


def is_quick(state: RunState, query: Ids, k: int) -> bool:
    """Return whether the prepared run, if there is one, answers such a query."""
    return state.prepared is not None and query[1] >= 0 and k <= MAX_ANSWERS


def quick_predictions(state: RunState, queries: Sequence[Ids], choice: Choice) -> list[Prediction]:
    """Return the answers to queries that are quick, best first."""
    assert state.prepared is not None
    calibration = calibration_of(state.run)
    base_rate = None if calibration is None else calibration.base_rate
    found = state.prepared.answer(queries, choice)
    return [_prediction(state, query, one, choice, base_rate) for query, one in zip(queries, found, strict=True)]


def _prediction(state: RunState, query: Ids, found: Found, choice: Choice, base_rate: float | None) -> Prediction:
    """Return the answers to one query as people read them."""
    head, relation, tail = query
    of_tail = tail < 0
    entity, predicate = state.entity_ref, state.relation_ref(relation)
    none: list[None] = [None] * len(found.ids)
    known = _splits(state, query, found.ids) if choice.known else none
    given = entity(head if of_tail else tail)
    probabilities = found.probabilities or none
    answers: list[Answer] = [
        {
            "rank": rank,
            "head": given if of_tail else other,
            "relation": predicate,
            "tail": other if of_tail else given,
            "score": score,
            "probability": probability,
            "base_rate": base_rate,
            "known": split,
        }
        for rank, (other, score, probability, split) in enumerate(
            zip(map(entity, found.ids), found.scores, probabilities, known, strict=True), start=1
        )
    ]
    return {
        "query": {"head": given if of_tail else None, "relation": predicate, "tail": None if of_tail else given},
        "answers": answers,
        "num_implausible": found.num_implausible,
    }


def _splits(state: RunState, query: Ids, ids: Sequence[int]) -> list[Split | None]:
    """Return the split that has each answer, None for a new one."""
    triples = torch.tensor(query).repeat(len(ids), 1)
    triples[:, query.index(-1)] = torch.tensor(ids, dtype=torch.int64)
    return [None if split < 0 else SPLITS[split] for split in state.run.graph.split_of(triples).tolist()]
