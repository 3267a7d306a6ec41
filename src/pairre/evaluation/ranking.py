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

from pairre.graph import Graph, KnownTriples, Side
from pairre.graph.index import COLUMN
from pairre.kernels import RankingBatch, backend
from pairre.models import Model
from pairre.support.errors import GraphError

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
    model: Model,
    triples: Tensor,
    known: KnownTriples,
    side: Side,
    progress: ProgressCallback | None = None,
    candidates: Tensor | None = None,
) -> Ranks:
    """Rank the true entity on `side` of [N, 3] triples among all entities, other known ones left out.

    With `candidates`, ids [C] in ascending order, it is ranked among these, of which it must be one. Scores are counted
    where they arise: nothing of size queries × entities is stored. The true entity is scored from its row among the
    candidates, so that an entity with an equal row ties, whatever the shapes rows are prepared in. Where processes
    share the rows of entities, each counts among its own, and the sums of the counts are exact.
    """
    device = model.device
    triples, index = triples.to(device, torch.int64), known.side(side, device)
    true_id = true_place = triples[:, COLUMN[side]].contiguous()
    begin, end = index.ranges(triples)
    excluded, num_all = index.members, model.num_entities
    if candidates is not None:
        candidates, num_all = candidates.to(device), len(candidates)
        true_place = torch.searchsorted(candidates, true_id)
        begin, end, excluded = _places(candidates, begin, end, excluded)
    # A group costs as few launches as may be: where candidates depend on the relation, there are hundreds of groups.
    every, of_queries = torch.arange(len(triples), device=device), torch.stack([true_place, begin, end])
    counts = [(every[:0], every[:0], every[:0], torch.zeros(0, dtype=model.dtype, device=device))]
    kernels, size = backend(device.type), max(1, _MAX_QUERY_FEATURES[device.type] // model.dim)
    processes = model.processes
    with torch.no_grad():
        for part, query, chunks in model.candidate_groups(triples, side, size, candidates):
            metric, (place, low, high) = model.metric or model.pair_score, of_queries[:, part]
            true_rows = here = None
            for first_id, rows in chunks():
                at = place - first_id
                inside, own = (at >= 0) & (at < len(rows)), rows[at.clamp(0, len(rows) - 1)]
                true_rows = own if true_rows is None else torch.where(inside[:, None], own, true_rows)
                here = inside if here is None else here | inside
            true_score = torch.zeros(len(place), dtype=model.dtype, device=device)
            if true_rows is not None:
                true_score = kernels.true_scores(metric, *query, true_rows).to(model.dtype)
            if processes is not None:  # the one that holds the row has its score
                true_score = processes.sum(true_score if here is None else torch.where(here, true_score, 0))
            higher, equal = torch.zeros(2, len(place), dtype=torch.int64, device=device)
            batch = RankingBatch(metric, *query, true_score, place, low, high, excluded)
            for first_id, rows in chunks():
                above, ties = kernels.count_above(batch, rows, first_id)
                higher += above
                equal += ties
                if progress is not None:
                    progress(len(above) * len(rows) * (processes.size if processes else 1))
            counts.append((part if isinstance(part, Tensor) else every[part], higher, equal, true_score))
    order, *found = (torch.cat(column) for column in zip(*counts, strict=True))
    higher, equal, true_score = (torch.empty_like(column).index_copy_(0, order, column) for column in found)
    if processes is not None:
        higher, equal = processes.sum(torch.stack([higher, equal]))
    is_known = index.contains(triples, true_id[:, None])[:, 0]
    num_candidates = num_all - (end - begin) + is_known.long()
    return _ranks(higher, equal, num_candidates, true_score.isnan())


def _places(candidates: Tensor, begin: Tensor, end: Tensor, members: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ranges [B] of members with positions among candidates [C] in place of ids; members that are none go."""
    place = torch.searchsorted(candidates, members.long())
    found = candidates[place.clamp(max=len(candidates) - 1)] == members
    before = torch.cat([found.new_zeros(1, dtype=torch.int64), found.cumsum(0)])
    return before[begin], before[end], place[found].to(members.dtype)


def rank_plausible(
    model: Model,
    graph: Graph,
    triples: Tensor,
    known: KnownTriples,
    side: Side,
    progress: ProgressCallback | None = None,
) -> tuple[Ranks, Tensor]:
    """Rank the true entity on `side` of [N, 3] triples among plausible ones only, and say which are not, bool [N].

    Like known ones, a query's own entity is left out where the relation has no loops. A true entity that is not
    plausible is ranked last of all entities, because nobody would be shown it. Such ranks say how good the answers of
    `predict` are. They are not comparable with published ones, which are among all entities.
    """
    higher, equal = (torch.zeros(len(triples), dtype=torch.int64) for _ in range(2))
    num_candidates = torch.full_like(higher, model.num_entities)
    lost = torch.zeros(len(triples), dtype=torch.bool)
    known = _known_or_own(graph, triples, known, side)
    for relation in torch.unique(triples[:, 1]).tolist():
        rows = (triples[:, 1] == relation).nonzero()[:, 0]
        candidates = graph.domains.plausible(relation, side)
        lost[rows] = ~torch.isin(triples[rows, COLUMN[side]], candidates)
        if not graph.domains.has_loops(relation):
            lost[rows] |= triples[rows, 0] == triples[rows, 2]
        if len(rows := rows[~lost[rows]]):
            ranks = rank(model, triples[rows], known, side, progress, candidates)
            higher[rows], equal[rows], num_candidates[rows] = ranks.higher, ranks.equal, ranks.num_candidates
    higher[lost] = model.num_entities - 1
    return Ranks(higher, equal, num_candidates), lost


def _known_or_own(graph: Graph, triples: Tensor, known: KnownTriples, side: Side) -> KnownTriples:
    """Return the known answers to the queries of triples, and the query's own entity where a relation has no loops."""
    queries, column = triples.long().clone(), COLUMN[side]
    queries[:, column] = 0
    queries = torch.unique(queries, dim=0)
    row, members = known.side(side).known(queries)
    answers = queries[row]
    answers[:, column] = members
    has_loops = torch.tensor([graph.domains.has_loops(relation) for relation in range(graph.num_relations)])
    own = queries[~has_loops[queries[:, 1]]]
    own[:, column] = own[:, 2 - column]
    return KnownTriples(torch.cat([answers, own]), graph.num_entities, graph.num_relations)


def rank_among(
    model: Model, triples: Tensor, candidates: Tensor, side: Side, progress: ProgressCallback | None = None
) -> Ranks:
    """Rank the true entity on `side` of [N, 3] triples among itself and its fixed candidates [N, K]."""
    device = model.device
    if candidates.numel() and not 0 <= int(candidates.min()) <= int(candidates.max()) < model.num_entities:
        raise GraphError(f"fixed candidates of the {side}: an id without a name; the graph is damaged")
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
