"""The best candidates of many queries at once: a running top k over chunks of candidates, so that memory is bounded.

B queries, C candidates, R relations, K answers of each query.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pairre.evaluation.ranking import ProgressCallback
from pairre.graph import KnownTriples, Side
from pairre.graph.index import COLUMN, SideIndex
from pairre.kernels import backend
from pairre.models import Model
from pairre.support.processes import Processes

_MAX_QUERIES = {"cpu": 256, "cuda": 1 << 14}  # queries that go through the candidates together
_MAX_SCORES = {"cpu": 1 << 20, "cuda": 1 << 26}  # scores that are held at a time


class Best(NamedTuple):
    """The best candidates of B queries, best first; where a query has fewer than K, ids are −1 and scores −∞.

    A candidate whose score is not a finite number is none of them. If there are any, no order means much.
    """

    ids: Tensor  # [B, K] int64
    scores: Tensor  # [B, K] float32
    num_lost: int  # scores that are not finite numbers


@torch.no_grad()
def best_entities(
    model: Model,
    queries: Tensor,
    side: Side,
    k: int,
    *,
    candidates: Tensor | None = None,
    known: KnownTriples | None = None,
    without_own: bool = False,
    progress: ProgressCallback | None = None,
) -> Best:
    """Return the k entities that score best on `side` of each of [B, 3] queries, whose member on that side is ignored.

    Candidates are all entities, or those of the ids [C], ascending. Left out are those that complete a `known` triple
    and, with `without_own`, the query's own entity. Of equal scores the smallest id wins. Results are on the CPU.
    `progress` is called with the number of queries since its last call.
    """
    device = model.device
    queries = queries.to(device, torch.int64)
    if candidates is not None:
        candidates = candidates.to(device)
        candidates = None if len(candidates) == model.num_entities else candidates
    num_candidates = model.num_entities if candidates is None else len(candidates)
    index = None if known is None else known.side(side, device)
    k = min(k, num_candidates)
    ids = torch.full((len(queries), k), -1, device=device)
    scores = torch.full((len(queries), k), -torch.inf, device=device)
    num_lost = torch.zeros((), dtype=torch.int64, device=device)
    kernels, metric = backend(device.type), model.metric or model.pair_score
    for part, query, chunks in model.candidate_groups(queries, side, _MAX_QUERIES[device.type], candidates):
        row, position = _excluded(queries[part], side, index, without_own, candidates)
        best = ids.new_empty(len(query[0]), 0), scores.new_empty(len(query[0]), 0)
        size = max(1, _MAX_SCORES[device.type] // max(1, len(query[0])))
        for start, rows in chunks():
            for offset in range(0, len(rows), size):
                scored = kernels.score_candidates(metric, *query, rows[offset : offset + size])
                first = start + offset
                at = row, position
                if scored.shape[1] < num_candidates:
                    inside = (position >= first) & (position < first + scored.shape[1])
                    at = row[inside], position[inside] - first
                scored[at] = 0.0
                lost = scored.isfinite().logical_not_()
                num_lost += lost.sum()
                scored.masked_fill_(lost, -torch.inf)
                scored[at] = -torch.inf
                best = _merged(*best, scored, first, k)
        if model.processes is not None:
            best = _best_of_all(model.processes, *best, k)
        positions, scores[part] = best
        found = positions if candidates is None else candidates[positions.clamp(max=num_candidates - 1)]
        ids[part] = found.masked_fill(best[1] == -torch.inf, -1)
        if progress is not None:
            progress(len(query[0]))
    num_lost = num_lost if model.processes is None else model.processes.sum(num_lost)
    return Best(ids.cpu(), scores.float().cpu(), int(num_lost))


def _best_of_all(processes: Processes, positions: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the best k of what all processes have found [B, ·], each among the candidates that it holds.

    Processes hold ascending blocks, so that of equal scores the candidate that comes first wins here, too.
    """
    positions, scores = (found.T for found in processes.gather(positions.T, scores.T))
    order = scores.argsort(dim=1, descending=True, stable=True)[:, :k]
    return positions.gather(1, order), scores.gather(1, order)


def _excluded(
    queries: Tensor,
    side: Side,
    index: SideIndex | None,
    without_own: bool,
    candidates: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return which candidates do not count, some of them twice: (which query, position among the candidates), flat."""
    rows, ids = [], []
    if index is not None:
        row, members = index.known(queries)
        rows.append(row)
        ids.append(members)
    if without_own:
        rows.append(torch.arange(len(queries), device=queries.device))
        ids.append(queries[:, 2 - COLUMN[side]])
    if not rows:
        return queries.new_empty(0), queries.new_empty(0)
    row, entity = torch.cat(rows), torch.cat(ids)
    if candidates is None:
        return row, entity
    position = torch.searchsorted(candidates, entity)
    found = candidates[position.clamp(max=max(0, len(candidates) - 1))] == entity if len(candidates) else entity < 0
    return row[found], position[found]


def _merged(ids: Tensor, scores: Tensor, scored: Tensor, first: int, k: int) -> tuple[Tensor, Tensor]:
    """Return the best k of those found so far [B, ·] and of new scores [B, N], whose first candidate is `first`.

    Of equal scores the candidate that comes first wins.
    """
    if scored.shape[1] > k:
        positions = _first_best(scored, k)
        scored = scored.gather(1, positions)
    else:
        positions = torch.arange(scored.shape[1], device=scored.device).expand(scored.shape)
    positions = positions + first
    if ids.shape[1]:
        positions, scored = torch.cat([ids, positions], 1), torch.cat([scores, scored], 1)
    order = scored.argsort(dim=1, descending=True, stable=True)[:, :k]
    return positions.gather(1, order), scored.gather(1, order)


def _first_best(scored: Tensor, k: int) -> Tensor:
    """Return the positions [B, k], ascending, of the k best of scores [B, N]; of equal ones the first.

    `topk` takes any of those that are equal to the last.
    """
    values, positions = scored.topk(k, dim=1)
    positions, least = positions.sort(dim=1).values, values[:, -1:]
    crowded = ((scored >= least).sum(1) > k) & (least[:, 0] > -torch.inf)
    if crowded.any():
        tied, above = scored[crowded] == least[crowded], scored[crowded] > least[crowded]
        kept = above | (tied & (tied.cumsum(1) <= k - above.sum(1, keepdim=True)))
        positions[crowded] = kept.nonzero()[:, 1].view(-1, k)
    return positions


@torch.no_grad()
def best_relations(
    model: Model,
    queries: Tensor,
    k: int,
    *,
    allowed: Tensor | None = None,
    known: KnownTriples | None = None,
    progress: ProgressCallback | None = None,
) -> Best:
    """Return the k relations that score best between head and tail of each of [B, 3] queries, at least one.

    Left out are relations that `allowed` [B, R] marks as false, and those that complete a `known` triple.
    """
    device, parts, num_lost = model.device, [], 0
    queries = queries.to(device, torch.int64)
    k = min(k, model.num_relations)
    size = max(1, _MAX_SCORES[device.type] // model.num_relations)
    for start in range(0, len(queries), size):
        part = queries[start : start + size]
        scores = model.score_relations(part[:, 0], part[:, 2])
        kept = torch.ones_like(scores, dtype=torch.bool)
        if allowed is not None:
            kept = allowed[start : start + size].to(device, copy=True)
        if known is not None:
            row, relation = known.side("relation", device).known(part)
            kept[row, relation] = False
        lost = ~scores.isfinite() & kept
        num_lost += int(lost.sum())
        scores = scores.masked_fill(~kept | lost, -torch.inf)
        ids, best = _merged(queries.new_empty(len(part), 0), scores[:, :0], scores, 0, k)
        parts.append((ids.masked_fill(best == -torch.inf, -1), best.float()))
        if progress is not None:
            progress(len(part))
    ids, best = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
    return Best(ids, best, num_lost)
