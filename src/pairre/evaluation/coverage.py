"""How many answers a query needs so that the true one is among them with a given probability (split conformal).

A fact that was held out has a rank among the answers to its query. If a new fact is drawn as the n facts of the
validation split were, then its rank is as likely to take any place among theirs. So it is at most the
⌈(n + 1) · coverage⌉-th smallest of them with probability `coverage` or more, whatever the model is. The ranks compared
are those of one side and one relation, or of all relations with few facts together, so that the promise holds for each
of these groups (Mondrian).

N triples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pairre.evaluation.ranking import rank, rank_plausible
from pairre.graph import Side
from pairre.runs import Run
from pairre.support.errors import PairREError
from pairre.support.randomness import generator

MIN_RANKS = 50  # of a relation that is a group of its own
_MAX_RANKS = 5_000  # of a group


@dataclass(frozen=True)
class AnswerCount:
    """How many answers a query needs (`k`), and the ranks that say so: how many, and of which relations."""

    k: int
    num_ranks: int
    group: str


def answers_needed(run: Run, relation: int, side: Side, coverage: float, *, any: bool = False) -> AnswerCount:
    """Return how many of the best answers have the true one among them with probability `coverage` or more.

    Answers are the plausible entities, or with `any` all, without known ones. A PairREError says that the validation
    split has too few triples for that coverage, or that the true entity is implausible too often.
    """
    if not 0 < coverage < 1:
        raise PairREError(f"coverage {coverage:g}: a number between 0 and 1 expected")
    if side == "relation":
        raise PairREError("coverage: it is known for heads and tails only; give the relation")
    if len(run.graph.valid) == 0:
        raise PairREError(
            f"coverage: {run.graph.name} has no validation triples, whose ranks say how many answers it takes; "
            "train with some, such as --split 90/5/5"
        )
    least = max(MIN_RANKS, math.ceil(coverage / (1 - coverage)))
    triples, group = _group(run, relation, least)
    position = math.ceil((len(triples) + 1) * coverage - 1e-9)
    if position > len(triples):
        raise PairREError(
            f"coverage {coverage:g}: {run.graph.name} has {len(triples):,} validation triples, and it takes "
            f"{math.ceil(coverage / (1 - coverage)):,}; choose a lower coverage"
        )
    values = (
        rank(run.model, triples, run.graph.known, side).values("pessimistic") if any else _ranks(run, triples, side)
    )
    found = values.sort().values[position - 1].item()
    if math.isinf(found):
        raise PairREError(
            f"coverage {coverage:g}: {int(values.isinf().sum()):,} of {len(values):,} true answers are implausible; "
            "choose a lower coverage, or take all entities for answers (--any)"
        )
    return AnswerCount(int(found), len(triples), group)


def _group(run: Run, relation: int, least: int) -> tuple[Tensor, str]:
    """Return the validation triples that a relation is compared with, and the name of that group."""
    valid = run.graph.valid.long()
    counts = torch.bincount(valid[:, 1], minlength=run.graph.num_relations)
    if counts[relation] >= least:
        triples, group = valid[valid[:, 1] == relation], "this relation"
    else:
        triples, group = valid[counts[valid[:, 1]] < least], "relations with few triples"
        if len(triples) < least:
            triples, group = valid, "all relations"
    if len(triples) > _MAX_RANKS:
        triples = triples[torch.randperm(len(triples), generator=generator(0, "coverage"))[:_MAX_RANKS]]
    return triples, group


def _ranks(run: Run, triples: Tensor, side: Side) -> Tensor:
    """Return the rank [N] of each true entity among the plausible ones; infinite if it is not plausible itself."""
    ranks, lost = rank_plausible(run.model, run.graph, triples, run.graph.known, side)
    return ranks.values("pessimistic").masked_fill_(lost, torch.inf)
