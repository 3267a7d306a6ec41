"""Scores of several models for the hardest candidates of validation queries, on which an ensemble's weights are fitted.

A query's candidates are its true entity, the best ones of each model, and some random ones that stand for all others.
Those that complete another known triple are none. So the scores fit into memory, whatever the size of the graph, and
what matters for ranks and probabilities is there, exactly or almost.

N triples, C candidates of each query, M models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from pairre.evaluation.ranking import SIDES, ProgressCallback
from pairre.evaluation.topk import best_entities
from pairre.graph import Graph, Side
from pairre.graph.index import COLUMN
from pairre.models import Model
from pairre.support.randomness import generator

_NUM_BEST = 64  # of each model
_NUM_RANDOM = 64


@dataclass(frozen=True)
class CandidateScores:
    """Scores of queries' candidates by several models; the first candidate is the true entity."""

    scores: Tensor  # [Q, C, M] float32
    size: Tensor  # [Q, C] float32: how many entities a candidate stands for, 0 if it is none
    relation: Tensor  # [Q] int64
    triple: Tensor  # [Q] int64: the two queries of a triple have one number

    def select(self, chosen: Tensor) -> CandidateScores:
        """Return some of the queries."""
        return CandidateScores(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def _compact(self) -> CandidateScores:
        """Return the same without the columns in which no query has a candidate, after those that are none are last."""
        width = int((self.size > 0).sum(1).max()) if len(self.size) else 0
        order = (self.size == 0).byte().argsort(dim=1, stable=True)[:, :width]
        scores = self.scores.gather(1, order[:, :, None].expand(-1, -1, self.scores.shape[2]))
        return replace(self, scores=scores, size=self.size.gather(1, order))

    def reciprocal_ranks(self, weights: Tensor) -> Tensor:
        """Return the reciprocal rank [Q] of each true entity by Σ_m weights[q, m] score_m, ties counted half."""
        mixed = torch.einsum("qcm,qm->qc", self.scores, weights.float())
        true, others = mixed[:, :1], mixed[:, 1:]
        above = ((others > true) + (others == true) / 2) * self.size[:, 1:]
        return 1 / (1 + above.double().sum(1))


@torch.no_grad()
def candidate_scores(
    models: Sequence[Model],
    graph: Graph,
    triples: Tensor,
    fixed: Mapping[Side, Tensor] | None = None,
    progress: ProgressCallback | None = None,
) -> CandidateScores:
    """Return the scores of both sides of [N, 3] triples; `progress` gets the number of scores since its last call.

    With `fixed`, each triple has these candidates [N, K] on a side, and no others.
    """
    triples, device = triples.long(), models[0].device
    parts = []
    for side in SIDES:
        if fixed:
            ids = torch.cat([triples[:, COLUMN[side], None], fixed[side].long()], 1)
            size = torch.ones(ids.shape)
        else:
            ids, size = _candidates(graph, triples, side, _best(models, graph, triples, side, progress))
        queries = triples.to(device)
        scores = [model.score_candidates(queries, side, ids.to(device)).float().cpu() for model in models]
        parts.append(CandidateScores(torch.stack(scores, 2), size, triples[:, 1], torch.arange(len(triples))))
    columns = ([getattr(part, field.name) for part in parts] for field in fields(CandidateScores))
    return CandidateScores(*(torch.cat(column) for column in columns))._compact()


def _best(
    models: Sequence[Model], graph: Graph, triples: Tensor, side: Side, progress: ProgressCallback | None
) -> Tensor:
    """Return the ids [N, ·] of each model's best candidates, −1 where there are fewer."""

    def advance(num_queries: int) -> None:
        if progress is not None:
            progress(num_queries * graph.num_entities)

    found = [best_entities(model, triples, side, _NUM_BEST, known=graph.known, progress=advance) for model in models]
    return torch.cat([best.ids for best in found], 1)


def _candidates(graph: Graph, triples: Tensor, side: Side, best: Tensor) -> tuple[Tensor, Tensor]:
    """Return candidates [N, C] and their sizes: true ones, `best` [N, ·] once each, and random others."""
    num = graph.num_entities
    random = torch.randint(num, (len(triples), min(_NUM_RANDOM, num)), generator=generator(0, "candidates", side))
    best = best.sort(1).values
    again = torch.zeros_like(best, dtype=torch.bool)
    again[:, 1:] = best[:, 1:] == best[:, :-1]
    counts = (best >= 0) & ~again
    place = torch.searchsorted(best, random).clamp(max=best.shape[1] - 1)
    index = graph.known.side(side)
    others = ~index.contains(triples, random) & (best.gather(1, place) != random)
    num_known = index.count(triples) + ~index.contains(triples, triples[:, COLUMN[side], None])[:, 0]
    rest = (num - num_known - counts.sum(1)).clamp(min=0)
    share = rest / others.sum(1).clamp(min=1)
    one = torch.ones(len(triples), 1)
    ids = torch.cat([triples[:, COLUMN[side], None], best.clamp(min=0), random], 1)
    return ids, torch.cat([one, counts.float(), others * share[:, None].float()], 1)
