"""The best new answers to the queries of a split: what people are shown, with the knowledge of which are true.

A query is a distinct (anchor, relation) of a split on a side. Its candidates are the plausible entities
(`graph/domains.py`), without those that the other splits know as answers, and without the anchor itself unless the
relation has loops in train.

B queries, K candidates, N answers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from pairre.evaluation.ranking import SIDES, ProgressCallback
from pairre.evaluation.topk import Best, best_entities
from pairre.graph import SPLITS, KnownTriples, Side, Split
from pairre.graph.index import COLUMN
from pairre.runs import Run
from pairre.support.randomness import generator

_MAX_TRIPLES = 10_000  # of a split
_MAX_RELATIONS = 2_000  # of the triples of a split, because each is a ranking of its own
_MAX_FEATURES = 1 << 38  # features of candidates that are compared, so that a huge graph takes bounded time
JudgedAnswers = tuple[Tensor, Tensor, Tensor]  # scores, relations, and which are true: [N] each, on the CPU


def best_answers(run: Run, split: Split, num_best: int = 10, progress: ProgressCallback | None = None) -> JudgedAnswers:
    """Return the best new answers to the queries of a split, on both sides; those in the split are true.

    Entities that came with `extend` are none of them. Of a large split, a sample of the triples is used, always the
    same. `progress` is called with the number of scores since its last call.
    """
    graph = run.graph
    sizes = graph.num_entities, graph.num_relations
    true = KnownTriples(graph.split(split), *sizes).side
    known = KnownTriples(torch.cat([graph.split(s) for s in SPLITS if s != split]), *sizes)
    found: list[JudgedAnswers] = [(torch.empty(0), torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.bool))]
    for side, questions in _questions(run, split):
        best = best_new(run, questions, side, known, num_best)
        relation, is_true = questions[:, 1, None].expand_as(best.ids), true(side).contains(questions, best.ids)
        listed = (best.ids >= 0) & (best.ids < run.num_trained)
        found.append((best.scores[listed], relation[listed], is_true[listed]))
        if progress is not None:
            progress(len(questions) * graph.num_entities)
    scores, relations, are_true = (torch.cat(column) for column in zip(*found, strict=True))
    return scores, relations, are_true


def best_new(run: Run, questions: Tensor, side: Side, known: KnownTriples, num_best: int) -> Best:
    """Return the best answers that are not known to queries [B, 3] of one relation."""
    domains, relation = run.graph.domains, int(questions[0, 1])
    candidates, without_own = domains.plausible(relation, side), not domains.has_loops(relation)
    return best_entities(
        run.model, questions, side, num_best, candidates=candidates, known=known, without_own=without_own
    )


def _questions(run: Run, split: Split) -> Iterator[tuple[Side, Tensor]]:
    """Yield the queries [B, 3] of a split by side and relation."""
    triples = _sample(run, split)
    for side in SIDES:
        questions = triples.clone()
        questions[:, COLUMN[side]] = 0
        questions = torch.unique(questions, dim=0)
        for relation in torch.unique(questions[:, 1]):
            yield side, questions[questions[:, 1] == relation]


def _sample(run: Run, split: Split) -> Tensor:
    """Return the triples of a split, or the first of them in a random order where they or their relations are many."""
    graph = run.graph
    triples = graph.split(split).long()
    limit = min(_MAX_TRIPLES, max(500, _MAX_FEATURES // (graph.num_entities * run.model.dim)))
    if len(triples) > limit:
        triples = triples[torch.randperm(len(triples), generator=generator(0, "calibration"))[:limit]]
    if len(torch.unique(triples[:, 1])) > _MAX_RELATIONS:
        triples = triples[torch.randperm(len(triples), generator=generator(0, "calibration"))]
        first = np.unique(triples[:, 1].numpy(), return_index=True)[1]
        triples = triples[: np.sort(first)[_MAX_RELATIONS]]
    return triples
