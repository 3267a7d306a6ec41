"""What the report shows of answers: a sample of the best new ones, worst errors, and how far probabilities are right.

B queries, N ranked triples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pairre.evaluation.answers import best_answers, best_new
from pairre.evaluation.calibration import calibration_of, describe_calibration
from pairre.evaluation.ranking import SIDES, Ranks
from pairre.graph import Graph, Side, Split
from pairre.graph.index import COLUMN
from pairre.graph.statistics import relation_categories, relation_means
from pairre.runs import Calibration, Run
from pairre.support.randomness import generator

MOST_RELATIONS, ANSWERS_PER_RELATION = 12, 2
MOST_QUESTIONS = 200  # of a relation
MOST_ERRORS = 300  # relations with an error
NUM_BINS = 10


def answers_and_reliability(run: Run, split: Split, ranks: Mapping[Side, Ranks]) -> dict[str, Any]:
    """Return the sections of the report about answers; those that a run has nothing for are left out."""
    calibration = calibration_of(run)
    result: dict[str, Any] = {"answers": _new_answers(run, calibration)}
    if calibration is not None:
        result["base_rate"] = calibration.base_rate
        newer = " What is about an entity that came with `extend` has a score only."
        has_newer = any(answer["p"] is None for answer in result["answers"])
        result["answers_note"] = describe_calibration(calibration) + newer * has_newer
    if ranks:
        result["errors"] = _worst_errors(run, split, ranks)
        if calibration is not None and (diagram := reliability(run, split, calibration)):
            result["reliability"] = diagram
    return result


def _new_answers(run: Run, calibration: Calibration | None) -> list[dict[str, Any]]:
    """Return the best new tails that a sample of heads gets, for the most frequent relations, most probable first."""
    graph = run.graph
    frequent = relation_means(graph)[0].argsort(descending=True, stable=True)[:MOST_RELATIONS].tolist()
    categories, rows = relation_categories(graph), []
    for relation in frequent:
        heads = _heads_to_ask(graph, relation, one_tail=categories[relation].endswith("1"))
        if len(heads) == 0:
            continue
        questions = torch.stack([heads, torch.full_like(heads, relation), heads], 1)
        found = best_new(run, questions, "tail", graph.known, 1)
        row = (found.ids >= 0).nonzero()[:, 0]
        heads, scores, tails = heads[row], found.scores[row, 0], found.ids[row, 0]
        best = scores.argsort(descending=True, stable=True)[:ANSWERS_PER_RELATION]
        p: list[float | None] = [None] * len(best)
        if calibration is not None:
            given = torch.stack([heads[best], torch.full_like(best, relation), tails[best]], 1)
            p = calibration.of_triples(scores[best], given)
        for head, tail, score, probability in zip(heads[best], tails[best], scores[best], p, strict=True):
            names = {"head": graph.show_entity(int(head)), "tail": graph.show_entity(int(tail))}
            rows.append({**names, "relation": relation, "score": round(float(score), 4), "p": probability})
    return sorted(rows, key=lambda row: -(row["p"] or 0))


def _heads_to_ask(graph: Graph, relation: int, one_tail: bool) -> Tensor:
    """Return some entities that a relation has as heads; if a head has one tail only, plausible ones that have none."""
    own = graph.known.side("tail")
    heads = graph.domains.plausible(relation, "head") if one_tail else graph.domains.observed(relation, "head")
    if one_tail:
        heads = heads[own.count(torch.stack([heads, torch.full_like(heads, relation), heads], 1)) == 0]
    order = torch.randperm(len(heads), generator=generator(0, "report", relation))
    return heads[order[:MOST_QUESTIONS]]


def _worst_errors(run: Run, split: Split, ranks: Mapping[Side, Ranks]) -> list[dict[str, Any]]:
    """Return for each relation the triple of the split that is ranked worst, and what is answered instead."""
    triples = run.graph.split(split).long()
    values = torch.stack([ranks[side].values() for side in SIDES], 1)  # [N, 2]
    errors = []
    for relation in torch.unique(triples[:, 1]).tolist():
        rows = (triples[:, 1] == relation).nonzero()[:, 0]
        worst, side_number = divmod(int(values[rows].argmax()), 2)
        side, row = SIDES[side_number], int(rows[worst])
        rank = float(values[row, side_number])
        if rank > 1:
            errors.append((rank, relation, side, triples[row]))
    errors.sort(key=lambda error: -error[0])
    return [_error(run, rank, relation, side, triple) for rank, relation, side, triple in errors[:MOST_ERRORS]]


def _error(run: Run, rank: float, relation: int, side: Side, triple: Tensor) -> dict[str, Any]:
    graph = run.graph
    found = best_new(run, triple[None], side, graph.known, 1).ids.flatten().tolist()  # none, −1 or one
    first = found[0] if found and found[0] >= 0 else None
    return {
        "relation": relation,
        "side": side,
        "anchor": graph.show_entity(int(triple[2 - COLUMN[side]])),
        "true": graph.show_entity(int(triple[COLUMN[side]])),
        "rank": round(rank, 1),
        "instead": None if first is None else graph.show_entity(first),
    }


def worst_errors(
    run: Run, split: Split, ranks: Mapping[Side, Ranks], rows: Tensor, num: int, num_better: int = 3
) -> list[dict[str, Any]]:
    """Return those of some triples of a split that are ranked worst on a side, by id, and what is answered instead."""
    triples, errors = run.graph.split(split).long(), []
    values = torch.stack([ranks[side].values()[rows] for side in SIDES], 1)  # [N, 2]
    for position in values.flatten().argsort(descending=True, stable=True)[:num].tolist():
        row, side_number = divmod(position, 2)
        side, triple, rank = SIDES[side_number], triples[rows[row]], float(values[row, side_number])
        if rank > 1:
            found = best_new(run, triple[None], side, run.graph.known, num_better).ids.flatten().tolist()
            better = [id for id in found if id >= 0]
            errors.append({"triple": triple.tolist(), "side": side, "rank": rank, "better": better})
    return errors


def reliability(run: Run, split: Split, calibration: Calibration) -> dict[str, Any]:
    """Return the bins of a reliability diagram over the ten best answers to the queries of a split."""
    scores, relations, true = best_answers(run, split)
    if len(scores) == 0:
        return {}
    p, y = calibration.probability(scores, relations), true.double()
    number = (p * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    groups = [(number == i) for i in sorted(set(number.tolist()))]
    bins = [[p[group].mean().item(), y[group].mean().item(), int(group.sum())] for group in groups]
    error = sum(abs(expected - found) * count for expected, found, count in bins) / len(p)
    note = (
        f"Of the ten best new answers to each query of the {split} split ({len(p):,} answers, {y.mean():.1%} of "
        f"them in the split), how many are in it, by their probability. On the diagonal the two agree. Brier score "
        f"{((p - y) ** 2).mean():.4f}, expected calibration error {error:.4f}."
    )
    return {"bins": bins, "note": note + (" The curve was fitted on this very split." if split == "valid" else "")}
