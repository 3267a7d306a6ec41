"""A graph of ogbl-wikikg2's shape with planted structure, as `ogb_shape.py` describes it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pairre.graph import SPLITS, KnownTriples, Side, Split
from pairre.graph.benchmarks import find

NAME, SEED, NEGATIVES = "ogbl-wikikg2", 0, 500
KINDS, FACETS, THEMES = 8, 2, 64  # fewer themes where communities would have fewer than 16 members
PATTERNS = ("plain", "symmetric", "there", "back", "hubs")  # of relations, in turn; `back` mirrors `there`
HUBS, NOISE, MIRRORED = 3, 0.1, 0.8  # tails of a community that `hubs` lead to; shares that are random and mirrored
HEADS, TAILS = 1.5, 3.0  # how uneven draws from a community are; 1 is even
Arrays = dict[str, np.ndarray]
SIDES: tuple[Side, Side] = ("head", "tail")
GIVEN: tuple[Split, Split] = ("valid", "test")
_DRAWS, _ROWS = 1 << 22, 1 << 13  # triples drawn, and triples given their candidates, at a time


# --- the graph ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Relations:
    """Where each relation leads, from community to community."""

    facet: np.ndarray  # [R]: the one it looks at
    first: np.ndarray  # [R]: the first community of its heads; those of the other themes follow
    leads: dict[Side, np.ndarray]  # [R, C] int32: community of the true entities on a side, −1 where there are none
    mirror: np.ndarray  # [R]: the relation that holds the other way round, or −1
    limit: np.ndarray  # [R]: how many of a community can be its tails
    share: np.ndarray  # [R]: of the draws


@dataclass(frozen=True)
class World:
    """What is hidden. Communities are numbered through all facets."""

    num_entities: int
    num_relations: int
    num_themes: int
    community: np.ndarray  # [FACETS, E] int32
    place: np.ndarray  # [FACETS, E] int32: of an entity in its community, 0 is drawn most often
    members: np.ndarray  # [FACETS · E] int32: entities by community and place
    start: np.ndarray  # [C]: where a community begins in `members`
    size: np.ndarray  # [C]
    relations: Relations


def make_world(num_entities: int, num_relations: int, random: np.random.Generator) -> World:
    """Communities and relations at random."""
    themes = min(THEMES, 1 << max(0, (num_entities // (16 * KINDS)).bit_length() - 1))
    kind, popularity = random.integers(KINDS, size=num_entities), random.permutation(num_entities)
    community: np.ndarray = (np.arange(FACETS)[:, None] * KINDS + kind) * themes
    community += random.integers(themes, size=(FACETS, num_entities))
    size = np.bincount(community.ravel(), minlength=FACETS * KINDS * themes)
    start = np.cumsum(size) - size
    members: np.ndarray = np.argsort(community * num_entities + popularity, axis=1)
    place: np.ndarray = np.arange(FACETS * num_entities).reshape(FACETS, -1)
    np.put_along_axis(place, members, place - start[np.take_along_axis(community, members, 1)], 1)
    community, place, members = (a.astype(np.int32) for a in (community, place, members.ravel()))
    relations = _make_relations(num_relations, themes, random)
    return World(num_entities, num_relations, themes, community, place, members, start, size, relations)


def _make_relations(num: int, themes: int, random: np.random.Generator) -> Relations:
    """Relations by their patterns, between kinds that are used about evenly."""
    patterns = [PATTERNS[r % len(PATTERNS)] for r in range(num)]
    share = np.array([0 if name == "back" else 1 / (r + 10) for r, name in enumerate(patterns)])
    facet, mask = random.integers(FACETS, size=num), random.integers(themes, size=num)
    mirror, load, ends = np.full(num, -1), np.zeros(KINDS), np.zeros((num, 2), np.int64)
    for r, name in enumerate(patterns):
        if name == "back":
            facet[r], mask[r], ends[r] = facet[r - 1], mask[r - 1], ends[r - 1, ::-1]
            mirror[r], mirror[r - 1] = r - 1, r
            continue
        for end in (0, 1):
            ends[r, end] = ends[r, 0] if end and name == "symmetric" else load.argmin()
            load[ends[r, end]] += share[r]
        mirror[r] = r if name == "symmetric" else -1
    heads, tails = (facet[:, None] * KINDS + ends).T * themes
    theme, row = np.arange(themes), np.arange(num)[:, None]
    leads = {side: np.full((num, FACETS * KINDS * themes), -1, np.int32) for side in SIDES}
    leads["tail"][row, heads[:, None] + theme] = tails[:, None] + (theme ^ mask[:, None])
    leads["head"][row, tails[:, None] + theme] = heads[:, None] + (theme ^ mask[:, None])
    limit = np.array([HUBS if name == "hubs" else 1 << 30 for name in patterns])
    return Relations(facet, heads, leads, mirror, limit, share / share.sum())


def draw(world: World, num: int, random: np.random.Generator) -> np.ndarray:
    """Triples as numbers, one for each draw and some more for the mirrored ones."""
    relations, relation = world.relations, random.choice(world.num_relations, num, p=world.relations.share)
    source = relations.first[relation] + random.integers(world.num_themes, size=num)
    target = relations.leads["tail"][relation, source]
    head = _members(world, source, world.num_entities, random.random(num) ** HEADS)
    tail = _members(world, target, relations.limit[relation], random.random(num) ** TAILS)
    also = (relations.mirror[relation] >= 0) & (random.random(num) < MIRRORED)
    head, tail = np.concatenate([head, tail[also]]), np.concatenate([tail, head[also]])
    relation = np.concatenate([relation, relations.mirror[relation[also]]])
    noise = np.flatnonzero(random.random(len(head)) < NOISE)
    head[noise], tail[noise] = random.integers(world.num_entities, size=(2, len(noise)))
    keys: np.ndarray = (head * world.num_relations + relation) * world.num_entities + tail
    return keys


def _members(world: World, community: np.ndarray, limit: np.ndarray | int, drawn: np.ndarray) -> np.ndarray:
    """Return a member of each community, by numbers from 0 to 1, among as many of its first as the limit allows."""
    place = (np.minimum(world.size[community], limit) * drawn).astype(np.int64)
    members: np.ndarray = world.members[world.start[community] + place]
    return members.astype(np.int64)


def make_splits(world: World, sizes: dict[Split, int], random: np.random.Generator) -> dict[Split, Tensor]:
    """Distinct triples, split at random: int32 [N, 3] each."""
    wanted, found = sum(sizes.values()), np.empty(0, np.int64)
    while len(found) < wanted:
        left = round((wanted - len(found)) / (1 + MIRRORED / 2)) + 100  # half of the draws have a mirrored triple
        drawn = [draw(world, min(_DRAWS, left - at), random) for at in range(0, left, _DRAWS)]
        found = np.sort(np.concatenate([found, *drawn]))
        found = found[np.diff(found, prepend=-1) > 0]
    found = found[random.permutation(len(found))[:wanted]]
    pair, tail = np.divmod(found, world.num_entities)
    triples = torch.from_numpy(np.stack([*np.divmod(pair, world.num_relations), tail], 1).astype(np.int32))
    return dict(zip(sizes, torch.split(triples, list(sizes.values())), strict=True))


def make_negatives(world: World, splits: dict[Split, Tensor]) -> Arrays:
    """Entities for each side of the held-out triples, all equally likely, but none that makes a triple of the graph."""
    known = KnownTriples(torch.cat(list(splits.values())), world.num_entities, world.num_relations)
    lists = [(split, side) for side in SIDES for split in GIVEN if known.side(side)]  # built here, not by every thread
    negatives = {f"{split}.{side}": np.empty((len(splits[split]), NEGATIVES), np.int32) for split, side in lists}
    jobs = [(*names, first) for names in lists for first in range(0, len(splits[names[0]]), _ROWS)]

    def fill(job: int) -> None:
        split, side, first = jobs[job]
        random, part = np.random.default_rng([SEED, job]), slice(first, first + _ROWS)
        triples, rows = splits[split][part], negatives[f"{split}.{side}"][part]
        rows[:] = random.integers(world.num_entities, size=rows.shape, dtype=np.int32)
        doubtful = np.arange(len(rows))
        while len(doubtful):
            there = known.side(side).contains(triples[doubtful], torch.from_numpy(rows[doubtful]))
            row, place = np.nonzero(there.numpy())
            rows[doubtful[row], place] = random.integers(world.num_entities, size=len(row), dtype=np.int32)
            doubtful = doubtful[np.unique(row)]

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(fill, range(len(jobs))))
    return negatives


def make(scale: float) -> tuple[World, dict[Split, Tensor], Arrays]:
    """Return the graph at a share of the published sizes; relations get fewer by its root."""
    published, random = find(NAME), np.random.default_rng(SEED)
    num_relations = max(4 * len(PATTERNS), round(published.num_relations * scale**0.5))
    world = make_world(round(published.num_entities * scale), num_relations, random)
    splits = make_splits(world, {split: round(published.num_triples[split] * scale) for split in SPLITS}, random)
    return world, splits, make_negatives(world, splits)
