"""One step of training: batch → rows → scores → loss → gradients → rows moved, all of it on the device."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.models.base import Sets
from pairre.rules import Rule
from pairre.runs.folder import Progress, build_model
from pairre.settings.recipe import Recipe
from pairre.support.device import Aside, Recorded
from pairre.support.errors import RecipeError, TrainingError
from pairre.tables.optimizers import make_optimizer, restart_step
from pairre.training.losses import LOSSES
from pairre.training.rule_constraints import follow
from pairre.training.sampling import SIDES, Sampler

_BLOCK = 20  # steps that a GPU is asked for at a time; even, so that a block begins with tails


class Trainer:
    """Model, sampler and optimisers at some step; all that a step changes is on the device, its number included."""

    def __init__(self, graph: Graph, recipe: Recipe, device: torch.device, rules: Sequence[Rule] = ()) -> None:
        self.graph, self.recipe = graph, recipe
        self.sampler = Sampler(graph, recipe, device)  # first: while it builds its index it needs room of its own
        self.model = build_model(graph, recipe, device)
        if recipe.loss.relation_weight and not self.model.asks_relations:
            raise RecipeError(f"loss.relation_weight: {self.model.name} cannot be asked for relations while it trains")
        # Two sides that ask the same need not both ask, which is half of the work.
        sides = SIDES if self.model.reciprocal or self.model.directional else SIDES[:1]
        self._relations = {side: recipe.loss.relation_weight * len(SIDES) / len(sides) for side in sides}
        self.rules = follow(rules, self.model, graph, recipe) if rules else None
        self.tables = {name: table.detach() for name, table in self.model.named_parameters()}  # what optimisers move
        if self.rules:
            self.tables["relation"] = self.rules.table
        self.optimizers = {name: make_optimizer(table, recipe.train) for name, table in self.tables.items()}
        self._kept = {**self.model.state_dict(), **self.tables}  # what a checkpoint holds of the model
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        self.model.clock = self.clock
        self._weights = (
            {"weights": torch.arange(len(self.model.weights), device=device)} if self.model.weight_parts else {}
        )
        shared = self.sampler.share >= self.sampler.batch_size > graph.num_relations
        self._projects_once = self.model.projected and shared
        self.total = torch.zeros((), dtype=torch.float64, device=device)  # losses since they were last asked for
        self.progress = Progress()
        self._aside = Aside(device)
        self._beside = {name: Aside(device) for name in self.optimizers}
        me = weakref.proxy(self)  # so that the memory of a trainer that nobody has any more is freed at once
        self._steps = [Recorded(partial(Trainer._step, me, side), device) for side in SIDES]
        self._block = Recorded(partial(Trainer._several, me), device, warm=True)
        self.block = _BLOCK if device.type == "cuda" else 1  # steps that are best asked for at a time

    def start(self, progress: Progress) -> None:
        """Go on from somewhere else."""
        self.progress = progress
        self.clock.fill_(progress.step)

    def step(self, num: int = 1) -> None:
        """So many steps. On a GPU this only asks for them: nothing waits until a result is looked at."""
        restart = restart_step(self.recipe.train) if self.recipe.train.schedule == "step" else -1
        end = self.progress.step + num
        while (number := self.progress.step) < end:
            if number == restart:
                for optimizer in self.optimizers.values():
                    optimizer.restart(self.clock)
            whole = all(step.is_warm for step in self._steps) and number % 2 == 0 and self.block <= end - number
            if whole and not number < restart < number + self.block:
                self._block()
                self.progress.step += self.block
            else:
                self._steps[number % 2]()
                self.progress.step += 1

    def _several(self) -> None:
        """Steps enough that launching them costs the host little."""
        for i in range(_BLOCK):
            self._step(SIDES[i % 2])

    def _step(self, side: Side) -> None:
        """Batch → rows → scores → loss → gradients → rows moved."""
        self.model.train()
        batch = self.sampler.batch(side, self.clock)
        own = batch.share == 1  # then rows that several positives drew are read once
        others, place = (
            _distinct(batch.negatives, self.graph.num_entities) if own else (batch.negatives.flatten(), None)
        )
        alike = _alike(batch.relation, self.graph.num_relations) if self._projects_once else None
        sets = Sets(len(batch.negatives), batch.share, place, alike)
        relations = self._relations.get(side, 0.0)
        asked = torch.cat([batch.relation, self.sampler.relations]) if relations else batch.relation
        ids, make = (self.rules or self.model).reads(
            side,
            {
                "entity": torch.cat([batch.anchor, batch.true, others]),
                "relation": self.model.relation_ids(asked, side),
            },
        )
        ids |= self._weights
        with self._aside.work():
            groups = {name: self.sampler.kernels.group(ids[name]) for name in ids}
            known = self.sampler.known_mask(batch)
            related = self.sampler.known_relations(batch) if relations else None
            weight = batch.weight / batch.weight.sum()
        rows: dict[str, Tensor] = {}
        for name, optimizer in self.optimizers.items():
            with self._beside[name].work():
                if name in self._weights:  # moved every step, so that nothing is put off
                    rows[name] = self.model.weights
                    continue
                read = optimizer.read(ids[name], groups[name], self.clock)
                rows[name] = self.model.constrain(name, read).requires_grad_()  # a row that caught up may be outside
        self._join()
        entity, every_relation = make(rows)
        size = len(batch.true)
        relation, ends = every_relation[:size], entity[: 2 * size]
        positive, negative = self.model.batch_scores(side, entity, relation, sets)
        others_related = None if related is None else self.model.relation_scores(side, ends, every_relation[size:])
        self._aside.join()
        measure = partial(LOSSES[self.recipe.loss.name], weight=weight, recipe=self.recipe.loss)
        loss = measure(positive, negative, known)
        if others_related is not None:
            loss = loss + relations * measure(positive, others_related, related)
        penalty = self.penalty(rows["entity"][: 2 * size], relation)
        loss = loss if penalty is None else loss + penalty
        by_rules = self.rules.penalty(rows["relation"]) if self.rules else None
        loss = loss if by_rules is None else loss + by_rules
        gradients = torch.autograd.grad(loss, [rows[name] for name in self.optimizers])
        self.model.eval()
        for (name, optimizer), gradient in zip(self.optimizers.items(), gradients, strict=True):
            with self._beside[name].work():
                optimizer.step(groups[name], rows[name].detach(), gradient, self.clock)
                if name in self.model.constraints:
                    self._constrain(name, ids[name].clamp(min=0))
        self._join()
        self.total += loss.detach()
        self.clock += 1

    def _constrain(self, name: str, ids: Tensor) -> None:
        """Bring the rows that moved back to what they may be; equal ids write equal values."""
        table = self.tables[name]
        table.index_copy_(0, ids, self.model.constrain(name, table[ids]))

    def _join(self) -> None:
        for beside in self._beside.values():
            beside.join()

    def penalty(self, ends: Tensor, relation: Tensor) -> Tensor | None:
        """The regulariser: weight × mean over the batch of Σ |x|² (l2) or Σ |x|³ (n3) of its triples' parameters."""
        regularizer = self.recipe.regularizer
        if regularizer.name == "none" or regularizer.weight == 0:
            return None
        power = 2 if regularizer.name == "l2" else 3
        total = ends.abs().pow(power).sum() + relation.abs().pow(power).sum()
        return regularizer.weight * total / len(relation)

    def mean_loss(self, num_steps: int) -> float:
        """The mean loss of the last `num_steps` steps, which are forgotten; refused if it is not finite."""
        value = self.total.item() / num_steps
        self.total.zero_()
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss became {value} by step {self.progress.step:,}; the last good state is kept: "
                "try a smaller train.lr or a larger train.warmup"
            )
        return value

    def settle(self) -> None:
        """Finish what optimisers put off, so that the model can be used."""
        for name, optimizer in self.optimizers.items():
            optimizer.settle(self.clock)
            self.model.constrain(name, self.tables[name])
        if self.rules:
            self.rules.settle()

    def check_finite(self) -> None:
        """Refuse to let weights be stored that are good for nothing."""
        for name, table in self.tables.items():
            if not bool(table.isfinite().all()):
                raise TrainingError(
                    f"the {name} weights are not finite at step {self.progress.step:,}; the last good state is kept: "
                    "try a smaller train.lr or a larger train.warmup"
                )

    def tensors(self) -> dict[str, Tensor]:
        """Everything a checkpoint holds: weights and optimiser state, by name."""
        named = {f"model.{name}": value for name, value in self._kept.items()}
        for table, optimizer in self.optimizers.items():
            named |= {f"optimizer.{table}.{name}": value for name, value in optimizer.state.items()}
        return named


def _distinct(given: Tensor, num_ids: int) -> tuple[Tensor, Tensor]:
    """Each id once, filled up with −1 to a size that does not depend on them, and where each is found there."""
    flat = given.flatten()
    size = min(len(flat), num_ids)
    if num_ids <= 8 * len(flat):  # then a look at every id costs less than a sort
        there = flat.new_zeros(num_ids).index_fill_(0, flat, 1)
        slot = there.cumsum(0) - 1
        everyone = torch.arange(num_ids, device=flat.device)
        ids = flat.new_full((size + 1,), -1).scatter_(0, torch.where(there > 0, slot, size), everyone)
        return ids[:size], slot[flat].view(given.shape)
    ordered, order = flat.sort(stable=True)
    slot = torch.cat([flat.new_zeros(1), (ordered[1:] != ordered[:-1]).long()]).cumsum(0)
    ids = flat.new_full((size,), -1).scatter_(0, slot, ordered)
    return ids, torch.empty_like(flat).scatter_(0, order, slot).view(given.shape)


def _alike(relations: Tensor, num_relations: int) -> tuple[Tensor, Tensor]:
    """As `Sets.alike`: the first position of each relation, filled up to a size that does not depend on them."""
    distinct, which = _distinct(relations, num_relations)
    positions = torch.arange(len(relations), device=relations.device)
    first = torch.zeros_like(distinct).scatter_reduce_(0, which, positions, "amin", include_self=False)
    return first, which
