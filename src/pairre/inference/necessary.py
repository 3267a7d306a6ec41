"""The facts that an answer depends on: refit the vector of its head or tail without each of them, and ask again.

A refit moves one entity's row by a few steps of the loss of its facts, from where training left it. Refits without a
fact are compared with the refit that has all of them, which is why the difference is due to that fact.

V rows of the entity, B facts, K negatives, E entities, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.graph.graph import SIDES
from pairre.graph.index import COLUMN
from pairre.kernels import backend
from pairre.models.contract import Query
from pairre.runs import Run
from pairre.support.randomness import generator
from pairre.training.losses import SEPARABLE, loss_function

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


class _Given(NamedTuple):
    """Queries that give the entity, each with one of V rows of it, which all their scores follow.

    B facts have Q distinct queries: facts of one relation ask the same of a row.
    """

    side: Side  # that the queries leave open
    variant: Tensor  # [Q]
    relation: Tensor  # [Q, ·] rows
    known: Tensor  # [Q, K] negatives that make facts of train
    query: Tensor  # [B] which of the queries a fact asks
    true: Tensor  # [B, ·] stored rows of the true answers, prepared
    loop: Tensor | None  # [B, 1] whether the entity is the true answer, too; None if it never is
    weight: Tensor  # [B]


class _True(NamedTuple):
    """Queries of B facts that have the entity as the true answer: its own score alone follows the row, one of V."""

    side: Side
    variant: Tensor  # [B]
    relation: Tensor  # [B, ·] rows
    q: Tensor  # [B, ·] the query, of the stored rows
    w: Tensor | None
    negative: Tensor  # [B, K] scores of the negatives, or [B, 0] if the loss is separable
    known: Tensor  # of the same shape
    weight: Tensor  # [B]


class _Terms(NamedTuple):
    """A loss in parts, and what is the same for all rows: the loss itself is computed once, for all parts."""

    given: list[_Given]
    true: list[_True]
    weight: Tensor  # [ΣB]
    known: Tensor  # [ΣB, K], or [ΣQ, K] if the loss is separable
    query_weight: Tensor  # [ΣQ] of the facts that ask the same


class FactLoss:
    """The loss of facts of one entity as a function of its row, with the run's own loss and fixed negatives."""

    def __init__(self, run: Run, entity: int, facts: Tensor) -> None:
        """Take the facts [B, 3] as ids, each with the entity as head or tail."""
        self.run, self.model, self.entity = run, run.model, entity
        self.loss, self.separable = loss_function(run.recipe.loss.name), run.recipe.loss.name in SEPARABLE
        self.facts = facts.to(run.model.device, torch.int64)
        num = run.graph.num_entities
        random = generator(run.recipe.train.seed, "explain", entity)
        drawn = (
            torch.randperm(num, generator=random) if num <= 1 << 20 else torch.randint(num, (num,), generator=random)
        )
        self.negatives = drawn[:_NEGATIVES].to(self.facts.device)
        rows = self.model.entity_rows(self.negatives)
        self.prepared = {  # where they are the same for every query
            side: rows if self.model.projects_entities else self._prepare(side, rows, None) for side in SIDES
        }
        width = max(source.width for source in self.model.stored.values())
        self.at_once = max(1, _ELEMENTS // (len(self.negatives) * width))

    def gradients(self, row: Tensor) -> Tensor:
        """Return the gradient [B, D] of the loss of each fact for the entity's row [1, D]."""
        parts = []
        for facts in torch.split(self.facts, self.at_once):
            weights = torch.eye(len(facts), device=row.device)
            parts.append(self.gradient(row.expand(len(facts), -1), self.terms(weights, facts)))
        return torch.cat(parts)

    def mean_gradients(self, weights: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function of V rows: the gradients [V, D] of the weighted mean loss, with weights [V, B] each."""
        terms, total = self.terms(weights, self.facts), weights.sum(1, keepdim=True).clamp(min=1e-12)
        return lambda rows: self.gradient(rows, terms) / total

    def terms(self, weights: Tensor, facts: Tensor) -> _Terms:
        """Return the loss of facts [B, 3], for V rows of the entity with weights [V, B] each."""
        given: list[_Given] = []
        true: list[_True] = []
        for side in SIDES:
            is_given = facts[:, 2 - COLUMN[side]] == self.entity
            if bool(is_given.any()):
                given += self._given_terms(side, facts[is_given], weights[:, is_given])
            if not bool(is_given.all()):
                true += self._true_terms(side, facts[~is_given], weights[:, ~is_given])
        if self.separable:
            known = [term.known for term in given]
        else:
            known = [*(term.known[term.query] for term in given), *(term.known for term in true)]
        weight = torch.cat([*(term.weight for term in given), *(term.weight for term in true)])
        # Sums of few numbers are exact in double precision, and do not depend on the order that a GPU adds them in.
        of_queries = torch.cat([torch.bincount(term.query, term.weight.double()) for term in given]).to(weight.dtype)
        return _Terms(given, true, weight, torch.cat(known), of_queries)

    def gradient(self, rows: Tensor, terms: _Terms) -> Tensor:
        """Return the gradient [V, D] for rows [V, D] of the sum of terms."""
        with torch.enable_grad():
            leaf = rows.detach().requires_grad_()
            return torch.autograd.grad(self.value(leaf, terms), leaf)[0]

    def value(self, rows: Tensor, terms: _Terms) -> Tensor:
        """Return the sum of terms for rows [V, D], up to what does not depend on them if the loss is separable."""
        recipe, given = self.run.recipe.loss, [self._score_given(rows, term) for term in terms.given]
        positive = torch.cat([*(scores for scores, _ in given), *(self._score_true(rows, term) for term in terms.true)])
        if self.separable:
            none, negative = positive.new_zeros(len(positive), 0), torch.cat([scores for _, scores in given])
            of_positives = self.loss(positive, none, none.bool(), terms.weight, recipe)
            nothing = negative.new_zeros(len(negative))
            return of_positives + self.loss(nothing, negative, terms.known, terms.query_weight, recipe)
        repeated = [F.embedding(term.query, scores) for term, (_, scores) in zip(terms.given, given, strict=True)]
        negative = torch.cat([*repeated, *(term.negative for term in terms.true)])
        return self.loss(positive, negative, terms.known, terms.weight, recipe)

    def _score_given(self, rows: Tensor, term: _Given) -> tuple[Tensor, Tensor]:
        """Return scores of the true answers [B], and of the negatives of each distinct query [Q, K]."""
        own, true = F.embedding(term.variant, rows), term.true
        q, w = self.model.make_query(term.side, own, term.relation)
        if term.loop is not None:
            prepared = self._prepare(term.side, own, term.relation)
            true = torch.where(term.loop, F.embedding(term.query, prepared), true)
        query = F.embedding(term.query, q), None if w is None else F.embedding(term.query, w)
        return self.model.pair_score(*query, true), self._negative_scores(term.side, (q, w), term.relation)

    def _score_true(self, rows: Tensor, term: _True) -> Tensor:
        """Return scores [B] of the entity as the true answer."""
        query = term.q, term.w
        if self.model.projects_entities:
            own = F.embedding(term.variant, rows)
            return self.model.pair_score(*query, self._prepare(term.side, own, term.relation))
        return self.model.score_rows(*query, self._prepare(term.side, rows, None), term.variant[:, None])[:, 0]

    def _given_terms(self, side: Side, facts: Tensor, weights: Tensor) -> Iterator[_Given]:
        """Yield the queries of facts [B, 3] that leave a side open and give the entity."""
        model, open_facts = self.model, facts.clone()
        open_facts[:, COLUMN[side]] = 0
        asked, number = torch.unique(open_facts, dim=0, return_inverse=True)
        relation, known = model.relation_rows(asked[:, 1], side), self._known(side, asked)
        true = self._prepare(side, model.entity_rows(facts[:, COLUMN[side]]), relation[number])
        loop = facts[:, COLUMN[side], None] == self.entity
        for pairs in torch.split(weights.nonzero(), self.at_once):
            variant, row = pairs.T
            distinct, query = torch.unique(variant * len(asked) + number[row], return_inverse=True)
            which = distinct % len(asked)
            yield _Given(
                side,
                distinct // len(asked),
                relation[which],
                known[which],
                query,
                true[row],
                loop[row] if bool(loop[row].any()) else None,
                weights[variant, row],
            )

    def _true_terms(self, side: Side, facts: Tensor, weights: Tensor) -> Iterator[_True]:
        """Yield the queries of facts [B, 3] that leave a side open and have the entity as the true answer."""
        relation = self.model.relation_rows(facts[:, 1], side)
        q, w = self.model.make_query(side, self.model.entity_rows(facts[:, 2 - COLUMN[side]]), relation)
        if self.separable:
            negative = known = q.new_zeros(len(q), 0)
        else:
            negative, known = self._negative_scores(side, (q, w), relation), self._known(side, facts)
        for pairs in torch.split(weights.nonzero(), self.at_once):
            variant, row = pairs.T
            query = q[row], None if w is None else w[row]
            yield _True(side, variant, relation[row], *query, negative[row], known[row], weights[variant, row])

    def _known(self, side: Side, facts: Tensor) -> Tensor:
        """Return which negatives [B, K] on a side make facts of train."""
        return self.run.graph.known_train.side(side, facts.device).contains(facts, self.negatives)

    def _negative_scores(self, side: Side, query: Query, relation: Tensor) -> Tensor:
        """Return the scores [B, K] of the negatives."""
        if not self.model.projects_entities:
            return self.model.score_rows(*query, self.prepared[side])
        q, w = query
        prepared = self._prepare(side, self.prepared[side][None], relation[:, None])
        return self.model.pair_score(q[:, None], None if w is None else w[:, None], prepared)

    def _prepare(self, side: Side, rows: Tensor, relation: Tensor | None) -> Tensor:
        return self.model.prepare_entities(rows, self.model.candidate_side[side], relation)


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
    mean_gradients, rows = loss.mean_gradients(weights), row.repeat(num_refits + 1, 1)
    size = _RATE * row.square().mean().sqrt() / scale
    for step in range(_STEPS):
        rows = rows - size * (1 - step / _STEPS) * mean_gradients(rows)
        if rows.shape[1] == loss.model.stored["entity"].width:  # not of a model that encodes rows first
            rows = loss.model.constrain("entity", rows)
        if progress:
            progress(1 / _STEPS)
    return rows
