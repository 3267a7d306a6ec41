"""Rank with rules beside the model: score + weight of the relation × what rules say, the weights chosen on validation.

The evidence for a candidate is the confidence of the rules that imply it from the facts of train, 0 if none does. The
weight is in units of how far the scores of a query spread. Each relation has the weight of a grid with the highest
MRR on its validation triples, to which 20 ranks of the average relation are added, so that a relation with few of them
has the weight that suits all.

B queries, E entities, N triples, W weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pairre.evaluation.metrics import summarise
from pairre.evaluation.ranking import SIDES, ProgressCallback, Ranks
from pairre.graph import Side, Split
from pairre.graph.index import COLUMN
from pairre.rules import Rule, RuleBook
from pairre.rules.apply import Combine
from pairre.runs import Run
from pairre.support.errors import GraphError

WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # in units of the spread of scores
_PRIOR_RANKS = 20
_MAX_SCORES = {"cpu": 1 << 22, "cuda": 1 << 27}  # held at a time


@dataclass(frozen=True)
class RuleEvidence:
    """Rules, the facts that they are applied to, and how much what they say counts for each relation."""

    book: RuleBook
    spread: float  # standard deviation of the scores of a query, the unit of weights
    weights: Tensor  # [R] float64

    @classmethod
    def fit(
        cls,
        run: Run,
        rules: Sequence[Rule],
        combine: Combine = "max",
        progress: ProgressCallback | None = None,
    ) -> RuleEvidence:
        """Return rules with weights chosen on the validation split; `progress` gets the number of scores."""
        graph = run.graph
        if not len(graph.valid):
            raise GraphError(f"{graph.name}: no validation split, on which the weights of rules are chosen")
        book, spread = RuleBook(graph, rules, graph.train, combine), _spread(run)
        reciprocal = torch.zeros(len(WEIGHTS), graph.num_relations, dtype=torch.float64)
        relations = graph.valid[:, 1].long()
        for side in SIDES:
            grid = torch.tensor(WEIGHTS, dtype=torch.float64)[:, None].expand(-1, graph.num_relations)
            found = rank_with_rules(run, graph.valid, side, book, spread * grid, progress)
            for row, ranks in zip(reciprocal, found, strict=True):
                row.index_add_(0, relations, 1 / ranks.realistic)
        mean = reciprocal.sum(1, keepdim=True) / (2 * len(graph.valid))
        best = (reciprocal + _PRIOR_RANKS * mean).argmax(0)
        return cls(book, spread, torch.tensor(WEIGHTS, dtype=torch.float64)[best])

    def rank(self, run: Run, triples: Tensor, progress: ProgressCallback | None = None) -> dict[Side, Ranks]:
        """Return the ranks of both sides of [N, 3] triples, other known triples left out."""
        weights = (self.spread * self.weights)[None]
        return {side: rank_with_rules(run, triples, side, self.book, weights, progress)[0] for side in SIDES}


def evaluate_with_rules(
    run: Run,
    rules: Sequence[Rule],
    split: Split = "test",
    combine: Combine = "max",
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Return the metrics of a split with rules beside the model, without them, and the weights of relations.

    All entities are candidates. `progress` is called with the number of scores computed since its last call.
    """
    graph = run.graph
    triples = graph.split(split)
    if not len(triples):
        raise GraphError(f"{graph.name}: the {split} split is empty, so there is nothing to evaluate")
    evidence = RuleEvidence.fit(run, rules, combine, progress)
    none = torch.zeros(1, graph.num_relations, dtype=torch.float64)
    alone: Mapping[Side, Ranks] = {
        side: rank_with_rules(run, triples, side, evidence.book, none, progress)[0] for side in SIDES
    }
    names = graph.relations.name_list(range(graph.num_relations))
    return {
        "split": split,
        "graph": graph.name,
        "num_triples": len(triples),
        "num_rules": len(rules),
        "combine": combine,
        "with_rules": summarise(evidence.rank(run, triples, progress)),
        "without_rules": summarise(alone),
        "spread": evidence.spread,
        "weights": dict(zip(names, evidence.weights.tolist(), strict=True)),
    }


@torch.no_grad()
def _spread(run: Run) -> float:
    """Return the mean standard deviation of the scores of some queries of the validation split."""
    valid = run.graph.valid
    questions = valid[:: 1 + len(valid) // 256].to(run.model.device, torch.int64)
    size = max(1, _MAX_SCORES[questions.device.type] // run.graph.num_entities)
    parts = [run.model.score_all(part, "tail").std(1) for part in torch.split(questions, size)]
    return float(torch.cat(parts).double().mean())


@torch.no_grad()
def rank_with_rules(
    run: Run,
    triples: Tensor,
    side: Side,
    book: RuleBook,
    weights: Tensor,
    progress: ProgressCallback | None = None,
) -> list[Ranks]:
    """Return the ranks on one side of [N, 3] triples for each of W weights of all relations, [W, R] float64."""
    model, graph = run.model, run.graph
    device, counts = model.device, []
    size = max(1, _MAX_SCORES[device.type] // graph.num_entities)
    index, weights = graph.known.side(side, device), weights.to(device)
    order = triples[:, 1].argsort(stable=True)
    for part in torch.split(triples[order].long(), size):
        row, entity, confidence = (t.to(device) for t in answers_by_rules(book, part, side))
        part = part.to(device)
        scores, true = model.score_all(part, side), part[:, COLUMN[side], None]  # [B, E], [B, 1]
        known_row, known = index.known(part)
        other = known != true[known_row, 0]
        scores[known_row[other], known[other]] = torch.nan  # neither higher nor equal
        without = _count(scores, true)
        asked, position = torch.unique(row, return_inverse=True)  # the only queries whose counts depend on weights
        of_weights = []
        for weight in weights:
            mixed = scores[asked]
            mixed[position, entity] += (weight[part[row, 1]] * confidence).to(mixed.dtype)
            of_weights.append(without.index_copy(1, asked, _count(mixed, true[asked])))
        counts.append(torch.stack(of_weights))
        if progress is not None:
            progress(scores.numel())
    found = torch.empty(len(weights), 3, len(triples), dtype=torch.int64)
    found[:, :, order] = torch.cat(counts, 2).cpu()
    return [Ranks(*columns) for columns in found]


def _count(scores: Tensor, true: Tensor) -> Tensor:
    """Return how many of the scores [B, E] are above the true one, how many tie, and how many are no NaN, [3, B]."""
    limit = scores.gather(1, true)
    return torch.stack([(scores > limit).sum(1), (scores == limit).sum(1) - 1, (~scores.isnan()).sum(1)])


def answers_by_rules(book: RuleBook, queries: Tensor, side: Side) -> tuple[Tensor, Tensor, Tensor]:
    """Return what rules answer to [B, 3] queries, flat: which query, which entity, and with which confidence."""
    relations, anchors = queries[:, 1].cpu().numpy(), queries[:, 2 - COLUMN[side]].cpu().numpy()
    row, entity, confidence = (torch.from_numpy(column) for column in book.answers(relations, anchors, side))
    return row, entity, confidence
