"""Entities with similar vectors: the nearest to one, pairs that may be duplicates, and clusters.

Similarity is the cosine of entity vectors as the score uses them. Blocks of vectors are compared with each other, so
that memory stays bounded; only duplicates look at every pair.

N entities, D features, C clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.runs import Run
from pairre.runs.vectors import vector_chunks
from pairre.support.errors import PairREError
from pairre.support.randomness import generator

FractionCallback = Callable[[float], None]  # receives the part of the work done since the last call
_BLOCK = 4096  # entities compared with as many others at a time
_STARTS = 20  # entities a cluster, from which its first centre is drawn


@dataclass(frozen=True)
class Neighbour:
    """An entity and its similarity to the one that was asked about."""

    rank: int
    entity: str
    similarity: float


@dataclass(frozen=True)
class Pair:
    """Two entities with nearly the same vector."""

    entity: str
    other: str
    similarity: float


@dataclass(frozen=True)
class Cluster:
    """Entities whose vectors point in about one direction, the most typical first."""

    number: int
    entities: list[str]
    similarity: float  # mean of the entities' to the centre


def similar(run: Run, entity: str, *, k: int = 10) -> list[Neighbour]:
    """Return the k entities whose vectors are most similar to that of an entity, the most similar first.

    >>> similar(run, "France", k=3)
    """
    if k < 1:
        raise PairREError(f"k must be 1 or more, not {k}")
    graph, own = run.graph, run.graph.find_entity(entity)
    ids, values = nearest(run, own, k)
    return [
        Neighbour(rank, graph.entities[id], value)
        for rank, (id, value) in enumerate(zip(ids.tolist(), values.tolist(), strict=True), start=1)
    ]


def nearest(run: Run, own: int, k: int) -> tuple[Tensor, Tensor]:
    """Return the ids of the k entities most similar to entity `own`, without itself, and their cosines."""
    wanted = _vectors(run, torch.tensor([own]))[0]
    ids, values = (torch.empty(0, dtype=kind, device=wanted.device) for kind in (torch.int64, torch.float32))
    for start, rows in vector_chunks(run.model):
        cosines = F.normalize(_finite(run, rows), dim=1) @ wanted
        if start <= own < start + len(rows):
            cosines[own - start] = -torch.inf
        values = torch.cat([values, cosines])
        ids = torch.cat([ids, torch.arange(start, start + len(rows), device=ids.device)])
        best = values.topk(min(k, len(values)))
        ids, values = ids[best.indices], best.values
    there = values > -torch.inf
    return ids[there].cpu(), values[there].cpu()


def nearest_of(run: Run, own: int, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return those k of the entities `ids` that are most similar to entity `own`, without itself, and their cosines."""
    wanted = _vectors(run, torch.tensor([own]))[0]
    ids = ids[ids != own]
    cosines = torch.cat([(_vectors(run, part) @ wanted).cpu() for part in torch.split(ids, _BLOCK)] or [torch.empty(0)])
    best = cosines.topk(min(k, len(cosines)))
    return ids[best.indices], best.values


def duplicates(
    run: Run, *, threshold: float = 0.95, k: int = 100, progress: FractionCallback | None = None
) -> list[Pair]:
    """Return the k most similar pairs of entities whose similarity is at least `threshold`, the most similar first.

    Every pair is compared: a million entities take minutes on a GPU and hours on a CPU. `progress` is called with the
    fraction of pairs that were compared since its last call.
    """
    if not -1 <= threshold <= 1:
        raise PairREError(f"threshold {threshold:g}: a number from -1 to 1 expected")
    if k < 1:
        raise PairREError(f"k must be 1 or more, not {k}")
    num, device = run.graph.num_entities, run.model.device
    values, pairs = torch.empty(0, device=device), torch.empty(0, 2, dtype=torch.int64, device=device)
    for first in range(0, num, _BLOCK):
        rows = _block(run, first)
        for second in range(first, num, _BLOCK):
            cosines = rows @ (rows if second == first else _block(run, second)).T
            if second == first:
                cosines = cosines.triu(1).add_(torch.full_like(cosines, -torch.inf).tril())
            found = (cosines >= threshold).nonzero()
            values = torch.cat([values, cosines[found[:, 0], found[:, 1]]])
            pairs = torch.cat([pairs, found + torch.tensor([first, second], device=device)])
            best = values.topk(min(k, len(values)))
            values, pairs = best.values, pairs[best.indices]
            if progress:
                progress(cosines.numel() * (1 if second == first else 2) / num**2)
    names = run.graph.entities
    return [Pair(names[a], names[b], v) for (a, b), v in zip(pairs.tolist(), values.tolist(), strict=True)]


def clusters(
    run: Run, number: int, *, rounds: int = 50, seed: int = 0, progress: FractionCallback | None = None
) -> list[Cluster]:
    """Return `number` clusters of all entities, the largest first, by spherical k-means.

    Each entity is in the cluster whose centre, the mean direction of its entities, has the largest cosine. First
    centres are entities far from each other, and rounds end when no entity moves. `progress` is called with the
    fraction of the rounds done since its last call.
    """
    num = run.graph.num_entities
    if not 1 <= number <= num:
        raise PairREError(f"{number} clusters: a number from 1 to the {num:,} entities expected")
    centres = _first_centres(run, number, seed)  # [C, D]
    of = torch.full((num,), -1, device=centres.device)
    similarity = torch.zeros(num, device=centres.device)
    for round_number in range(rounds):
        before, sums = of.clone(), torch.zeros_like(centres)
        for first in range(0, num, _BLOCK):
            rows, part = _block(run, first), slice(first, first + _BLOCK)
            similarity[part], of[part] = (rows @ centres.T).max(1)
            sums.index_add_(0, of[part], rows)
        if done := bool((of == before).all()) or round_number == rounds - 1:
            break
        centres = torch.where(sums.norm(dim=1, keepdim=True) > 0, F.normalize(sums, dim=1), centres)
        if progress:
            progress(1 / rounds)
    assert done
    return _described(run, of.cpu(), similarity.cpu(), number)


def _first_centres(run: Run, number: int, seed: int) -> Tensor:
    """Return first centres [C, D], drawn as k-means++ does from a sample of the entities."""
    random = generator(seed, "clusters")
    chosen = torch.randperm(run.graph.num_entities, generator=random)[: _STARTS * number]
    rows = _vectors(run, chosen)
    distance = torch.full((len(rows),), torch.inf)
    centres = [int(torch.randint(len(rows), (1,), generator=random))]
    for _ in range(number - 1):
        distance = torch.minimum(distance, (1 - rows @ rows[centres[-1]]).clamp(min=0).cpu())
        distance[centres] = 0
        far = distance.double() + 1e-12  # where all are equal, any will do
        far[centres] = 0
        centres.append(int(torch.multinomial(far, 1, generator=random)))
    return rows[torch.tensor(centres, device=rows.device)]


def _described(run: Run, of: Tensor, similarity: Tensor, number: int) -> list[Cluster]:
    """Return the clusters that have entities, by name."""
    order = similarity.argsort(descending=True, stable=True)
    order = order[of[order].argsort(stable=True)]
    groups = torch.split(order, torch.bincount(of, minlength=number).tolist())
    found = sorted((group for group in groups if len(group)), key=len, reverse=True)
    return [
        Cluster(i, run.graph.entities.name_list(group.tolist()), float(similarity[group].mean()))
        for i, group in enumerate(found, start=1)
    ]


def _block(run: Run, first: int) -> Tensor:
    """Return unit vectors [n, D] of a block of entities."""
    return _vectors(run, torch.arange(first, min(first + _BLOCK, run.graph.num_entities)))


def _vectors(run: Run, ids: Tensor) -> Tensor:
    """Return unit vectors [n, D] of entities."""
    model = run.model
    with torch.no_grad():
        rows = model.as_vectors(model.entity_rows(ids.to(model.device)))
    return F.normalize(_finite(run, rows.float()), dim=1)


def _finite(run: Run, rows: Tensor) -> Tensor:
    if not bool(torch.isfinite(rows).all()):
        raise PairREError(f"{run.path or run.graph.name}: a vector is not finite; the weights have diverged")
    return rows
