"""Answer queries by name: the best tails, heads or relations of a pair, known triples marked or left out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pairre.graph import SPLITS, Side
from pairre.graph.index import COLUMN
from pairre.runs import Run
from pairre.support.errors import PairREError

_SIDES: tuple[Side, ...] = ("head", "relation", "tail")


@dataclass(frozen=True)
class Prediction:
    """One answer: a whole triple by name, its score, and the split in which it is known, if any."""

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
    """Return the k most plausible triples with two of the three names given, best first.

    Triples that the graph already has are left out, or kept and marked with `known=True`.

    >>> predict(run, head="France", relation="borders", k=3)
    """
    names = {"head": head, "relation": relation, "tail": tail}
    missing = [side for side in _SIDES if names[side] is None]
    if len(missing) != 1:
        raise PairREError("give two of head, relation and tail; the third is what is predicted")
    if k < 1:
        raise PairREError(f"k must be 1 or more, not {k}")
    side, graph = missing[0], run.graph
    vocabularies = {"head": graph.entities, "relation": graph.relations, "tail": graph.entities}
    ids = [0 if name is None else vocabularies[member].id(name) for member, name in names.items()]
    query = torch.tensor([ids])  # [1, 3]
    _, known_ids = graph.known.side(side).known(query)
    best = _best_candidates(run, query, side, k, exclude=None if known else known_ids)
    already_known = set(known_ids.tolist())
    answers = []
    for position, (candidate, score) in enumerate(best, start=1):
        answer = {**{member: str(name) for member, name in names.items()}, side: vocabularies[side][candidate]}
        split = _split_of(run, query, side, candidate) if candidate in already_known else None
        answers.append(Prediction(position, answer["head"], answer["relation"], answer["tail"], score, split))
    return answers


@torch.no_grad()
def _best_candidates(run: Run, query: Tensor, side: Side, k: int, exclude: Tensor | None) -> list[tuple[int, float]]:
    """Return the ids and scores of the k best candidates of a query [1, 3], best first, without the excluded ids."""
    model, query = run.model, query.to(run.model.entity.device)
    if side == "relation":
        scores = model.score_relations(query[:, 0], query[:, 2])[0]
    else:
        scores = model.score_all(query, side)[0]
    scores = scores.cpu().nan_to_num(nan=-torch.inf)
    if exclude is not None:
        scores[exclude] = -torch.inf
    best = scores.topk(min(k, len(scores) - (0 if exclude is None else len(exclude))))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def _split_of(run: Run, query: Tensor, side: Side, candidate: int) -> str:
    """Return the split that a known triple is in."""
    triple = query[0].clone()
    triple[COLUMN[side]] = candidate
    return next(split for split in SPLITS if bool((run.graph.split(split) == triple).all(1).any()))
