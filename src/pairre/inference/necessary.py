"""The facts that an answer depends on: refit the vector of its head or tail without each of them, and ask again.

A refit moves one entity's row by a few steps of the loss of its facts, from where training left it. Refits without a
fact are compared with the refit that has all of them, which is why the difference is due to that fact.

V rows of the entity, B facts, K negatives, E entities, D features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.graph.index import COLUMN
from pairre.kernels import backend
from pairre.models.contract import Query
from pairre.runs import Run
from pairre.support.randomness import generator
from pairre.training.losses import loss_function

MOST_FACTS = 1000  # of an entity, for each of which a gradient is taken
MOST_REFITS = 16  # of an entity: as many facts are left out in turn
_MOST_KEPT = 64  # facts that hold the vector in place during a refit
_NEGATIVES = 64
_STEPS = 20
_RATE = 0.2  # of the first step, relative to the size of the vector's features
_RIVALS = 256  # best other candidates, whose scores the gradient of an answer takes into account
_ELEMENTS = 1 << 24  # of a temporary tensor


class Standing(NamedTuple):
    """How V variants of an answer stand among the other plausible candidates that are not known."""

    score: Tensor  # [V]
    rank: Tensor  # [V]
    log_share: Tensor  # [V] log of the answer's share in a softmax over the candidates

    def at(self, index: int) -> tuple[float, int]:
        """Return score and rank of one variant."""
        return float(self.score[index]), int(self.rank[index])


class Answer:
    """An answer (head, relation, tail) to the query that leaves `side` open."""

    def __init__(self, run: Run, triple: Tensor, side: Side) -> None:
        """Take the [3] ids of the triple."""
        self.run, self.model, self.side = run, run.model, side
        self.triple = triple.to(run.model.device)
        self.column = COLUMN[side]
        self.relation = self.model.relation_rows(self.triple[None, 1], side)
        self.others = self._other_candidates().to(self.triple.device)

    def rows(self) -> dict[Side, Tensor]:
        """Return the rows [1, D] of head and tail as they are."""
        return {side: self.model.entity_rows(self.triple[None, COLUMN[side]]) for side in ("head", "tail")}

    def stand(self, rows: dict[Side, Tensor]) -> Standing:
        """Return how the answer stands with V rows of its head, or of its tail, or of both."""
        query, true = self._query(rows)
        kernels, metric = backend(self.triple.device.type), self.model.metric or self.model.pair_score
        score = kernels.true_scores(metric, *query, true)  # the bits of the other candidates' scores
        higher = torch.zeros_like(score, dtype=torch.int64)
        total = score.clone()
        for start, chunk in self.model.candidate_chunks(self.side, self._projection()):
            others = self.model.score_rows(*query, chunk)
            others[:, ~self.others[start : start + len(chunk)]] = -torch.inf
            higher += (others > score[:, None]).sum(1)
            total = torch.logaddexp(total, others.logsumexp(1))
        return Standing(score.cpu(), higher.cpu() + 1, (score - total).cpu())

    def gradient(self, of: Side) -> Tensor:
        """Return the gradient [D] of the answer's log share for the row of its head or tail, against the best rivals.

        Both queries count, the one that leaves the tail open and the one that leaves the head open.
        """
        total = torch.zeros_like(self.rows()[of][0])
        for side in ("tail", "head"):
            answer = self if side == self.side else Answer(self.run, self.triple.cpu(), side)
            rivals = answer._rivals()
            with torch.enable_grad():
                rows = {one: row.detach().requires_grad_(one == of) for one, row in answer.rows().items()}
                query, true = answer._query(rows)
                share = score = answer.model.pair_score(*query, true)
                if len(rivals):
                    share = score - torch.logaddexp(score, answer.model.score_rows(*query, rivals).logsumexp(1))
                total += torch.autograd.grad(share.sum(), rows[of])[0][0]
        return total

    def _query(self, rows: dict[Side, Tensor]) -> tuple[Query, Tensor]:
        """Return the V queries, and the prepared rows of the answer's own entity, [V, ·]."""
        model, num = self.model, max(map(len, rows.values()))
        own, anchor = rows[self.side], rows["head" if self.side == "tail" else "tail"]
        relation = self.relation.expand(num, -1)
        query = model.make_query(self.side, anchor.expand(num, -1), relation)
        return query, model.prepare_entities(own.expand(num, -1), model.candidate_side[self.side], relation)

    def _other_candidates(self) -> Tensor:
        """Return which entities [E] the answer is compared with: plausible ones that do not make a known triple."""
        graph, (head, relation, tail) = self.run.graph, self.triple.tolist()
        others = torch.zeros(graph.num_entities, dtype=torch.bool)
        others[graph.domains.plausible(relation, self.side)] = True
        others[graph.known.side(self.side).known(self.triple[None].cpu())[1]] = False
        if not graph.domains.has_loops(relation):
            others[head if self.side == "tail" else tail] = False
        others[int(self.triple[self.column])] = False
        return others

    def _projection(self) -> Tensor | None:
        return self.relation if self.model.projects_entities else None

    @torch.no_grad()
    def _rivals(self) -> Tensor:
        """Return prepared rows of the best other candidates that are not known."""
        scores = self.model.score_all(self.triple[None], self.side)[0]
        scores[~self.others] = -torch.inf
        best = scores.topk(min(_RIVALS, len(scores)))
        ids = best.indices[best.values > -torch.inf]
        return self.model.prepare_entities(
            self.model.entity_rows(ids), self.model.candidate_side[self.side], self._projection()
        )


class FactLoss:
    """The loss of facts of one entity as a function of its row, with the run's own loss and fixed negatives."""

    def __init__(self, run: Run, entity: int, facts: Tensor) -> None:
        """Take the facts [B, 3] as ids, each with the entity as head or tail."""
        self.run, self.model, self.entity = run, run.model, entity
        self.loss = loss_function(run.recipe.loss.name)
        self.facts = facts.to(run.model.device, torch.int64)
        num = run.graph.num_entities
        random = generator(run.recipe.train.seed, "explain", entity)
        drawn = (
            torch.randperm(num, generator=random) if num <= 1 << 20 else torch.randint(num, (num,), generator=random)
        )
        self.negatives = drawn[:_NEGATIVES].to(self.facts.device)
        self.known = {  # negatives that make facts of train, [B, K]
            side: run.graph.known_train.side(side, self.facts.device).contains(self.facts, self.negatives)
            for side in ("tail", "head")
        }
        width = max(source.width for source in self.model.stored.values())
        self.at_once = max(1, _ELEMENTS // (len(self.negatives) * width))

    def gradients(self, row: Tensor) -> Tensor:
        """Return the gradient [B, D] of the loss of each fact for the entity's row [1, D]."""
        parts = []
        for start in range(0, len(self.facts), self.at_once):
            chosen = torch.arange(start, min(start + self.at_once, len(self.facts)), device=row.device)
            rows = row.expand(len(chosen), -1)
            parts.append(self._gradient(rows, torch.arange(len(chosen), device=row.device), chosen))
        return torch.cat(parts)

    def mean_gradients(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Return the gradient [V, D] of the weighted mean loss, for V rows with weights [V, B] each."""
        variant, fact = weights.nonzero().T
        total = torch.zeros_like(rows)
        for start in range(0, len(fact), self.at_once):
            part = slice(start, start + self.at_once)
            total += self._gradient(rows, variant[part], fact[part], weights[variant[part], fact[part]])
        return total / weights.sum(1, keepdim=True).clamp(min=1e-12)

    def _gradient(self, rows: Tensor, variant: Tensor, fact: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the gradient for rows [V, D] of the summed loss of facts [B], each with the row of its variant."""
        weight = torch.ones(len(fact), device=rows.device) if weight is None else weight
        with torch.enable_grad():
            leaf = rows.detach().requires_grad_()
            own = leaf[variant]
            loss = self._loss("tail", own, fact, weight) + self._loss("head", own, fact, weight)
            return torch.autograd.grad(loss, leaf)[0]

    def _loss(self, side: Side, rows: Tensor, fact: Tensor, weight: Tensor) -> Tensor:
        """Return the loss of the queries of facts [B] that leave `side` open, the entity's rows [B, D] given."""
        model, recipe, facts = self.model, self.run.recipe.loss, self.facts[fact]
        column, place = COLUMN[side], model.candidate_side[side]
        relation = model.relation_rows(facts[:, 1], side)

        def row_of(ids: Tensor) -> Tensor:
            return torch.where((ids == self.entity)[:, None], rows, model.entity_rows(ids))

        query = q, w = model.make_query(side, row_of(facts[:, 2 - column]), relation)
        positive = model.pair_score(*query, model.prepare_entities(row_of(facts[:, column]), place, relation))
        others = model.entity_rows(self.negatives)
        if model.projects_entities:
            prepared = model.prepare_entities(others[None], place, relation[:, None])
            negative = model.pair_score(q[:, None], None if w is None else w[:, None], prepared)
        else:
            negative = model.score_rows(*query, model.prepare_entities(others, place, None))
        return self.loss(positive, negative, self.known[side][fact], weight, recipe)


def facts_of(graph: Graph, entity: int, without: Tensor) -> Tensor:
    """Return the distinct facts [B, 3] of train that have an entity as head or tail, without one triple [3]."""
    own: Tensor = graph.train[(graph.train[:, 0] == entity) | (graph.train[:, 2] == entity)].long()
    own = torch.unique(own, dim=0)
    return own[(own != without).any(1)]


@dataclass(frozen=True)
class Dependence:
    """How an answer depends on each of some facts of its head or tail."""

    facts: Tensor  # [M, 3] that were left out in turn, the most necessary first
    without: Standing  # [M] how the answer stands after a refit without each of them
    refitted: tuple[float, int]  # score and rank after a refit with all facts
    fall: Tensor  # [M] how far the log share falls below that of the refit with all facts
    num_facts: int  # of the entity in train
    num_compared: int  # facts whose gradients were compared, to choose which to leave out


@torch.no_grad()
def dependence(answer: Answer, of: Side, progress: Callable[[float], None] | None = None) -> Dependence:
    """Return how an answer depends on the facts of its head or tail.

    Gradients say which facts pull the row towards the answer most; those are then left out of a refit in turn. Of an
    entity with more than `MOST_FACTS`, a random sample of them is compared.
    """
    run, entity = answer.run, int(answer.triple[COLUMN[of]])
    everything = facts_of(run.graph, entity, answer.triple.cpu())
    random = generator(run.recipe.train.seed, "explain", "facts", entity)
    facts = everything[torch.randperm(len(everything), generator=random)[:MOST_FACTS]]
    row = answer.rows()[of]
    if not len(facts):
        standing = answer.stand(answer.rows())
        nothing = Standing(*(part[:0] for part in standing))
        return Dependence(facts, nothing, standing.at(0), nothing.score, 0, 0)
    gradients = FactLoss(run, entity, facts).gradients(row)  # [B, D]
    scale = gradients.square().mean(0).sqrt().clamp(min=1e-12)
    # A step against the gradient of a fact raises the log share by this much.
    pull = -(gradients / scale) @ answer.gradient(of)
    order = pull.argsort(descending=True, stable=True).cpu()
    num_refits = min(MOST_REFITS, len(facts))
    kept = facts[torch.cat([order[:num_refits], order[num_refits:][: _MOST_KEPT - num_refits].sort().values])]
    rows = _refit(FactLoss(run, entity, kept), row, scale, num_refits, len(everything), progress)
    after = answer.stand({**answer.rows(), of: rows})
    fall = after.log_share[0] - after.log_share[1:]
    best = fall.argsort(descending=True, stable=True)
    without = Standing(*(part[1:][best] for part in after))
    return Dependence(kept[best], without, after.at(0), fall[best], len(everything), len(facts))


def _refit(
    loss: FactLoss,
    row: Tensor,
    scale: Tensor,
    num_refits: int,
    num_facts: int,
    progress: Callable[[float], None] | None,
) -> Tensor:
    """Return rows [1 + M, D]: refit with all facts, and without each of the first M.

    Facts that are not left out in turn stand for those of the entity that the refit does not see.
    """
    num = len(loss.facts)
    weights = torch.ones(num_refits + 1, num, device=row.device)
    weights[:, num_refits:] = (num_facts - num_refits) / max(1, num - num_refits)
    weights[torch.arange(1, num_refits + 1), torch.arange(num_refits)] = 0
    rows = row.repeat(num_refits + 1, 1)
    size = _RATE * row.square().mean().sqrt() / scale
    for step in range(_STEPS):
        rows = rows - size * (1 - step / _STEPS) * loss.mean_gradients(rows, weights)
        if rows.shape[1] == loss.model.stored["entity"].width:  # not of a model that encodes rows first
            rows = loss.model.constrain("entity", rows)
        if progress:
            progress(1 / _STEPS)
    return rows
