"""Rank the true entity of test triples among all entities, or among fixed candidates of each triple.

N triples, B queries at a time, E entities, K fixed candidates.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pairre.graph import KnownTriples, Side
from pairre.graph.index import COLUMN
from pairre.kernels import RankingBatch, backend
from pairre.models import Model

log = logging.getLogger("pairre")
ProgressCallback = Callable[[int], None]  # receives the number of scores since the last call
Ties = Literal["realistic", "optimistic", "pessimistic"]
SIDES: tuple[Side, Side] = ("head", "tail")
_TIED_ABOVE: dict[Ties, float] = {"optimistic": 0.0, "realistic": 0.5, "pessimistic": 1.0}
_MAX_QUERY_FEATURES = {"cpu": 1 << 18, "cuda": 1 << 26}  # features of the queries held at a time
_MAX_CANDIDATE_FEATURES = {"cpu": 1 << 22, "cuda": 1 << 28}  # features of the fixed candidates held at a time


@dataclass(frozen=True)
class Ranks:
    """Counts that decide the rank of the true entity on one side of N triples.

    They are the candidates that score higher, the candidates that tie, and all candidates including the true entity.
    """

    higher: Tensor  # [N] int64
    equal: Tensor  # [N] int64
    num_candidates: Tensor  # [N] int64

    def values(self, ties: Ties = "realistic") -> Tensor:
        """Return the ranks [N] as doubles.

        Tied candidates are ranked below the true entity (`optimistic`), above it (`pessimistic`), or half of them
        above it (`realistic`), so that a constant scorer gets the rank in the middle.
        """
        return self.higher.double() + 1 + _TIED_ABOVE[ties] * self.equal.double()

    def select(self, chosen: Tensor) -> Ranks:
        """Return the ranks of the triples at the positions `chosen` [M]."""
        return Ranks(self.higher[chosen], self.equal[chosen], self.num_candidates[chosen])

    @property
    def realistic(self) -> Tensor:
        """The ranks with half of the ties above the true entity."""
        return self.values("realistic")


def rank(
    model: Model, triples: Tensor, known: KnownTriples, side: Side, progress: ProgressCallback | None = None
) -> Ranks:
    """Rank the true entity on `side` of [N, 3] triples among all entities, other known ones left out.

    Scores are counted where they arise: nothing of size queries × entities is stored.
    """
    device = model.entity.device
    triples, index = triples.to(device, torch.int64), known.side(side, device)
    true_id = triples[:, COLUMN[side]]
    begin, end = index.ranges(triples)
    higher, equal = (torch.zeros(len(triples), dtype=torch.int64, device=device) for _ in range(2))
    true_score = torch.empty(len(triples), device=device)
    kernels, size = backend(device.type), max(1, _MAX_QUERY_FEATURES[device.type] // model.dim)
    with torch.no_grad():
        for part, chunks in model.candidate_groups(triples, side, size):
            relation, query = model.make_queries(triples[part], side)
            rows = model.prepare_entities(model.entity_rows(true_id[part]), model.candidate_side[side], relation)
            metric = model.metric or model.pair_score
            true_score[part] = kernels.true_scores(metric, *query, rows)
            batch = RankingBatch(metric, *query, true_score[part], true_id[part], begin[part], end[part], index.members)
            for first_id, rows in chunks():
                above, ties = kernels.count_above(batch, rows, first_id)
                higher[part] += above
                equal[part] += ties
                if progress is not None:
                    progress(len(above) * len(rows))
    is_known = index.contains(triples, true_id[:, None])[:, 0]
    num_candidates = model.num_entities - (end - begin) + is_known.long()
    return _ranks(higher, equal, num_candidates, true_score.isnan())


def rank_among(
    model: Model, triples: Tensor, candidates: Tensor, side: Side, progress: ProgressCallback | None = None
) -> Ranks:
    """Rank the true entity on `side` of [N, 3] triples among itself and its fixed candidates [N, K]."""
    device = model.entity.device
    counts, own = [], triples[:, COLUMN[side], None].long()
    size = max(1, _MAX_CANDIDATE_FEATURES[device.type] // (model.dim * (candidates.shape[1] + 1)))
    with torch.no_grad():
        for start in range(0, len(triples), size):
            part = slice(start, start + size)
            entities = torch.cat([own[part], candidates[part].long()], 1).to(device)
            scores = model.score_candidates(triples[part].to(device, torch.int64), side, entities)
            true, others = scores[:, :1], scores[:, 1:]
            counts.append(torch.stack([(others > true).sum(1), (others == true).sum(1), true[:, 0].isnan()]))
            if progress is not None:
                progress(len(scores) * model.num_entities)
    higher, equal, lost = torch.cat(counts, 1)
    return _ranks(higher, equal, torch.full_like(higher, candidates.shape[1] + 1), lost.bool())


def _ranks(higher: Tensor, equal: Tensor, num_candidates: Tensor, lost: Tensor) -> Ranks:
    """Return the ranks on the CPU; triples in `lost`, whose true score is NaN, are ranked last."""
    if num_lost := int(lost.sum()):
        log.warning("%s of %s true triples score NaN and are ranked last", f"{num_lost:,}", f"{len(lost):,}")
        higher = torch.where(lost, num_candidates - 1, higher)
        equal = torch.where(lost, 0, equal)
    return Ranks(higher.cpu(), equal.cpu(), num_candidates.cpu())


def rank_both_sides(
    model: Model,
    triples: Tensor,
    known: KnownTriples,
    progress: ProgressCallback | None = None,
    fixed_candidates: Mapping[Side, Tensor] | None = None,
) -> dict[Side, Ranks]:
    """Rank both sides of [N, 3] triples, among fixed candidates [N, K] of each side or among all entities."""
    if fixed_candidates:
        return {side: rank_among(model, triples, fixed_candidates[side], side, progress) for side in SIDES}
    return {side: rank(model, triples, known, side, progress) for side in SIDES}
