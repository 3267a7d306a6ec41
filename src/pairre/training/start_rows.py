"""Where the rows of new entities start: in closed form, at what their facts ask for.

A fact of a new entity e is a query whose answer is e. Its score compares the query (q, w) with a candidate c, so the c
with the best sum of scores is, in each feature, the median of q / w with the weights |w| (l1), the mean of q / w with
the weights w² (l2), the mean of q (modulus), or the direction of the mean of q (dot). Where rows cannot be had back
from candidates, entities start at the mean of the rows of their neighbours.

n entities, K facts of each (padded with facts that do not count), F facts in all, D features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pairre.graph import Side
from pairre.graph.index import COLUMN
from pairre.models import Model
from pairre.models.contract import Query
from pairre.settings import Recipe
from pairre.support.randomness import generator, key, uniform

Start = Literal["facts", "neighbours"]
_MAX_FACTS = 1024  # of one entity that count, drawn at random
_MAX_ELEMENTS = 1 << 24  # of a temporary tensor
_MAX_WAVES = 16  # of new entities that are linked to old ones by way of others
_PROBED = 64  # rows by which it is found out how candidates come from rows
_SIDES: tuple[Side, Side] = ("head", "tail")


@dataclass(frozen=True)
class Facts:
    """Facts in which one entity needs a row and the other has one."""

    triples: Tensor  # [F, 3] int64
    side: Tensor  # [F] int64: the column of the entity that needs a row

    @property
    def own(self) -> Tensor:
        """The entities that need a row, [F]."""
        return self.triples.gather(1, self.side[:, None])[:, 0]

    def select(self, chosen: Tensor) -> Facts:
        """Return the facts at some positions."""
        return Facts(self.triples[chosen], self.side[chosen])


@torch.no_grad()
def set_start_rows(model: Model, first_new: int, triples: Tensor, start: Start, recipe: Recipe) -> int:
    """Set the rows of entities from `first_new` on by their facts among triples [N, 3]; return how many have none.

    Entities with facts about old ones come first, then those with facts about these, and so on. Rows of entities that
    no such way leads to are drawn as those of a new model are.
    """
    device, bound, seed = model.device, recipe.init_range, recipe.train.seed
    table, ids = model.stored["entity"], torch.arange(model.num_entities, device=device)
    counter = torch.arange((model.num_entities - first_new) * table.width, device=device)
    drawn = uniform(key(seed, "init", "extended"), counter).view(-1, table.width)
    table.write(ids[first_new:], model.constrain("entity", drawn * 2 * bound - bound))
    triples = triples[torch.randperm(len(triples), generator=generator(seed, "start"))].to(device, torch.int64)
    fit = _Fit(model, first_new, start)
    started = ids < first_new
    for _ in range(_MAX_WAVES):
        facts = _usable(triples, started)
        if not len(facts.side):
            break
        facts = facts.select(facts.own.argsort(stable=True))
        entities, number = torch.unique_consecutive(facts.own, return_counts=True)
        for which, places in _padded(number, fit.width):
            found = fit.rows(facts.select(places.clamp(min=0).flatten()), places >= 0)
            table.write(entities[which], model.constrain("entity", found))
        started[entities] = True
    return int((~started).sum())


def _usable(triples: Tensor, started: Tensor) -> Facts:
    """Return the facts of entities without a row about entities with one."""
    parts = []
    for own in (0, 2):
        chosen = triples[~started[triples[:, own]] & started[triples[:, 2 - own]]]
        parts.append(Facts(chosen, torch.full_like(chosen[:, 0], own)))
    return Facts(*(torch.cat(members) for members in zip(*((p.triples, p.side) for p in parts), strict=True)))


def _padded(number: Tensor, width: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield entities with about as many facts each, and the positions of these facts, [n, K]; −1 where there is none.

    Facts are sorted by entity, `number` has how many each has, and `width` is how wide a fact is in memory.
    """
    first, number = number.cumsum(0) - number, number.clamp(max=_MAX_FACTS)
    size = 1
    while size < 2 * _MAX_FACTS:
        similar = ((number > size // 2) & (number <= size)).nonzero()[:, 0]
        within = torch.arange(size, device=number.device)
        for which in torch.split(similar, max(1, _MAX_ELEMENTS // (size * width))):
            if len(which):
                yield which, torch.where(within < number[which, None], first[which, None] + within, -1)
        size *= 2


class _Fit:
    """How rows of new entities come from their facts, found out from rows of old ones."""

    def __init__(self, model: Model, first_new: int, start: Start) -> None:
        self.model = model
        self.width = 2 * sum(source.width for source in model.stored.values())  # of a fact in memory
        spread = torch.linspace(0, first_new - 1, min(first_new, _PROBED), device=model.device)
        old = model.stored["entity"].gather(spread.long())
        self.length = float(old.norm(dim=1).mean())
        self.closed = start == "facts" and model.metric is not None
        self.closed &= not (model.projects_entities or model.needs_other_rows)
        self.rescaled = True  # whether only the direction of a row counts
        if self.closed:
            once, twice = (model.prepare_entities(rows, "tail", None) for rows in (old, 2 * old))
            self.closed = once.shape == old.shape and torch.allclose(
                once, _with_length(old, once.norm(dim=1)), atol=1e-6
            )
            self.rescaled = model.metric == "dot" or not torch.allclose(twice, 2 * once)

    def rows(self, facts: Facts, there: Tensor) -> Tensor:
        """Return rows [n, ·] from n × K facts, of which those count that are `there` [n, K]."""
        found = self._candidates(facts, there) if self.closed else self._neighbours(facts, there)
        return _with_length(found, self.length) if self.rescaled else found

    def _neighbours(self, facts: Facts, there: Tensor) -> Tensor:
        """Return the mean of the rows of the other entities."""
        others = facts.triples.gather(1, 2 - facts.side[:, None])[:, 0]
        rows = self.model.stored["entity"].gather(others)
        return _mean(rows.float().view(*there.shape, -1), there[..., None].float())

    def _candidates(self, facts: Facts, there: Tensor) -> Tensor:
        """Return the candidates that the facts ask for."""
        q, w = self._queries(facts)
        q, counts = q.view(*there.shape, -1), there[..., None].float()
        if w is None:
            return _median(q, counts.expand_as(q)) if self.model.metric == "l1" else _mean(q, counts)
        w = w.view_as(q)
        if self.model.metric == "modulus":
            return _complex_mean(q, w, counts)
        asked = torch.where(w == 0, 0, q / w)
        return _median(asked, counts * w.abs()) if self.model.metric == "l1" else _mean(asked, counts * w.square())

    def _queries(self, facts: Facts) -> Query:
        """Return the queries that the facts answer, [F, D]."""
        parts: list[tuple[Tensor, Query]] = []
        for side in _SIDES:
            chosen = (facts.side == COLUMN[side]).nonzero()[:, 0]
            if len(chosen):
                parts.append((chosen, self.model.make_queries(facts.triples[chosen], side)[1]))
        order = torch.cat([chosen for chosen, _ in parts]).argsort()
        vectors = torch.cat([q for _, (q, _) in parts])[order]
        if all(w is None for _, (_, w) in parts):
            return vectors, None
        # A model may scale candidates on one side only.
        return vectors, torch.cat([torch.ones_like(q) if w is None else w for _, (q, w) in parts])[order]


def _with_length(rows: Tensor, length: Tensor | float) -> Tensor:
    """Return rows scaled to a length, or to one each."""
    scaled: Tensor = torch.nn.functional.normalize(rows, dim=-1)
    return scaled * (length[:, None] if isinstance(length, Tensor) else length)


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean over dimension 1."""
    return (values * weights).sum(1) / weights.sum(1).clamp(min=1e-30)


def _median(values: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted median over dimension 1, of which there may be two: then their mean."""
    values, order = values.sort(1)
    below = weights.gather(1, order).cumsum(1)
    half = below[:, -1:] / 2
    last = values.shape[1] - 1
    both = [(reached.sum(1, keepdim=True)).clamp(max=last) for reached in (below < half, below <= half)]
    return torch.cat([values.gather(1, place) for place in both], 1).mean(1)


def _complex_mean(q: Tensor, w: Tensor, weights: Tensor) -> Tensor:
    """Return Σ w* q / Σ |w|² over complex features."""
    (a, b), (c, d) = q.chunk(2, -1), w.chunk(2, -1)
    size = (c.square() + d.square()) * weights
    found = [(part * weights).sum(1) / size.sum(1).clamp(min=1e-30) for part in (a * c + b * d, b * c - a * d)]
    return torch.cat(found, -1)
