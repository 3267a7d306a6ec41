"""Queries by name: the best tails, heads or relations of a pair, with what is already known marked or left out."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pairre.graph import SPLITS, Side
from pairre.runs.folder import Run
from pairre.support.errors import PairREError


@dataclass(frozen=True)
class Prediction:
    """One answer: a whole triple by name, its score, and the split it is known from, if any."""

    rank: int
    head: str
    relation: str
    tail: str
    score: float
    known: str | None


def predict(
    run: Run,
    *,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    k: int = 10,
    known: bool = False,
) -> list[Prediction]:
    """The k most plausible triples with two members given, best first.

    Triples the graph already has are left out, or kept and marked with `known=True`.
    """
    given = {"head": head, "relation": relation, "tail": tail}
    missing: list[Side] = [side for side in ("head", "relation", "tail") if given[side] is None]
    if len(missing) != 1:
        raise PairREError("give two of head, relation and tail; the third is what is predicted")
    if k < 1:
        raise PairREError(f"k must be 1 or more, not {k}")
    side, graph = missing[0], run.graph
    triple = torch.zeros(1, 3, dtype=torch.int64)
    for column, (member, vocabulary) in enumerate(
        (("head", graph.entities), ("relation", graph.relations), ("tail", graph.entities))
    ):
        name = given[member]
        if name is not None:
            triple[0, column] = vocabulary.id(name)

    with torch.no_grad():
        query = triple.to(run.model.entity.device)
        if side == "relation":
            scores = run.model.score_relations(query[:, 0], query[:, 2])[0]
        else:
            scores = run.model.score_all(query, side)[0]
    scores = scores.cpu().nan_to_num(nan=-torch.inf)
    _, members = graph.known.known(triple, side)
    if not known:
        scores[members] = -torch.inf
    best = scores.topk(min(k, len(scores) - (0 if known else len(members))))
    vocabulary = graph.relations if side == "relation" else graph.entities
    known_ids = set(members.tolist())
    answers = []
    for position, (index, score) in enumerate(zip(best.indices.tolist(), best.values.tolist(), strict=True), start=1):
        names = {**given, side: vocabulary[index]}
        where = _split_of(run, triple, side, index) if index in known_ids else None
        answers.append(
            Prediction(position, str(names["head"]), str(names["relation"]), str(names["tail"]), score, where)
        )
    return answers


def _split_of(run: Run, triple: torch.Tensor, side: Side, index: int) -> str:
    """Which split a known triple comes from."""
    wanted = triple[0].clone()
    wanted[{"head": 0, "relation": 1, "tail": 2}[side]] = index
    return next(s for s in SPLITS if bool((run.graph.split(s) == wanted).all(1).any()))
