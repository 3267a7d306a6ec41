"""Time a few steps of each candidate on this device, from which a plan follows how long it takes."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch

from pairre.evaluation import rank_both_sides
from pairre.graph import Graph
from pairre.settings import Recipe, resolve
from pairre.studies.effort.candidates import Candidate
from pairre.support.errors import RecipeError, TrainingError
from pairre.support.memory import is_out_of_memory
from pairre.training.step import Trainer

TOO_SLOW = "too slow for the time"
_LEAST_STEPS = 60  # of a trial
_MORE_ON_GPU = 5  # times as many, which take less than what comes before the first step
_PLAIN_STEPS = 8  # at least as many as a GPU takes before it captures one
_QUICK_SETUP = 0.5  # seconds, within which nothing can have been compiled
_RANKED = (20, 200, 2_000, 20_000)  # triples, until they take long enough to be timed
_LONG_ENOUGH = 0.05  # seconds
_SHARE = 0.1  # of the time, in which a trial must fit for its family to make another one superfluous
_FASTER_ON_GPU = 6  # times: a step with many scores, beside what its number says


@dataclass(frozen=True)
class Cost:
    """Seconds that a candidate takes on a device."""

    setup: float  # until its first step
    per_step: float
    per_ranking: float  # of one validation triple, both sides

    def steps_in(self, seconds: float, judged: int, validations: int) -> int:
        """Return how many steps can be taken in a time, validations included; at least 1."""
        return max(1, int((seconds - self.setup - validations * judged * self.per_ranking) / self.per_step))


class Probe:
    """Times a few steps of each candidate; one that is like another but for its numbers takes as long."""

    def __init__(self, graph: Graph, device: torch.device) -> None:
        self.graph, self.device = graph, device
        self.candidates: list[Candidate] = []
        self.costs: dict[str, Cost] = {}
        self.left_out: dict[str, str] = {}
        self.compiled = 0.0  # seconds that nothing has to wait for again
        self.least_steps = _LEAST_STEPS * (_MORE_ON_GPU if device.type == "cuda" else 1)  # of a trial
        self._known: dict[Recipe, Cost | str] = {}

    def try_all(self, tried: list[Candidate], seconds: float, until: float) -> None:
        """Find the cost of each candidate, or why it is left out; a TrainingError if nothing can be tried.

        What cannot take enough steps in all of the `seconds` is not timed, nor is anything new after a time `until`, to
        which that of compiling is added, unless there is nothing else.
        """
        for one in tried:
            recipe = resolve(self.graph, None, one.settings)
            if self._is_superfluous(one, seconds):
                self.left_out[one.name] = f"{one.instead_of} can be tried"
                continue
            late = time.monotonic() > until + self.compiled and self.costs
            is_slow = late or self._least_seconds(recipe) > seconds
            self._add(one, TOO_SLOW if is_slow and _shape(recipe) not in self._known else self.cost(recipe))
        for one in tried:
            if not self.candidates:  # one is trained in any case
                self._add(one, self.cost(resolve(self.graph, None, one.settings)))
        if not self.candidates:
            name, why = next(iter(self.left_out.items()))
            raise TrainingError(f"{self.graph.name}: nothing can be trained; {name}: {why}")

    def _is_superfluous(self, candidate: Candidate, seconds: float) -> bool:
        """Return whether the family that a candidate is there instead of takes enough steps in a part of the time."""
        others = [self.costs[one.name] for one in self.candidates if one.family == candidate.instead_of]
        return any(cost.steps_in(_SHARE * seconds, 0, 0) >= self.least_steps for cost in others)

    def _add(self, candidate: Candidate, cost: Cost | str) -> None:
        """Keep what a candidate takes, or why it is left out."""
        if isinstance(cost, str):
            self.left_out[candidate.name] = cost
        else:
            self.left_out.pop(candidate.name, None)
            self.candidates.append(candidate)
            self.costs[candidate.name] = cost

    def cost(self, recipe: Recipe) -> Cost | str:
        """Return what a recipe takes, or why it cannot be trained."""
        alike = _shape(recipe)
        if alike not in self._known:
            self._known[alike] = self._cost(recipe)
        return self._known[alike]

    def _least_seconds(self, recipe: Recipe) -> float:
        """Return how long a trial takes if a step takes as long for each score as with the default settings."""
        default = resolve(self.graph)
        usual = self.cost(default)
        if isinstance(usual, str):
            return 0.0
        seconds = self.least_steps * usual.per_step * self._features_compared(recipe) / self._features_compared(default)
        return seconds / (_FASTER_ON_GPU if self.device.type == "cuda" else 1)

    def _features_compared(self, recipe: Recipe) -> int:
        """Return how many features the scores of a step compare."""
        return recipe.train.batch * (recipe.sampling.negatives or self.graph.num_entities) * recipe.model.dim

    def _cost(self, recipe: Recipe) -> Cost | str:
        """Return what a candidate takes, or why it cannot be trained."""
        try:
            trainer, setup = self._warm_trainer(recipe)
            if setup > _QUICK_SETUP:  # kernels may have been compiled, which only the first training waits for
                del trainer  # two need not fit into memory
                trainer, again = self._warm_trainer(recipe)
                self.compiled += max(0.0, setup - again)
                setup = again
            started, steps, launch = time.perf_counter(), 0, max(2, trainer.steps_per_launch)
            while steps < 4 * launch and time.perf_counter() - started < 0.5:
                trainer.advance(launch)
                steps += launch
            trainer.mean_loss(steps)  # waits for the device
            step = (time.perf_counter() - started) / steps
            trainer.flush()
            return Cost(setup, step, self._seconds_to_rank(trainer))
        except (TrainingError, RecipeError, MemoryError, RuntimeError) as failure:
            if not isinstance(failure, TrainingError | RecipeError) and not is_out_of_memory(failure):
                raise
            return str(failure).splitlines()[0]

    def _warm_trainer(self, recipe: Recipe) -> tuple[Trainer, float]:
        """Return a trainer after its first steps, which on a GPU are captured, and the seconds that this took."""
        started = time.perf_counter()
        trainer = Trainer(self.graph, recipe, self.device)
        first = 2 if trainer.steps_per_launch == 1 else 2 * trainer.steps_per_launch + _PLAIN_STEPS
        trainer.advance(first)
        trainer.mean_loss(first)  # waits for the device
        return trainer, time.perf_counter() - started

    def _seconds_to_rank(self, trainer: Trainer) -> float:
        """Return how long the ranks of a validation triple take; the first of them compile kernels."""
        began, spent = time.perf_counter(), 0.0
        for number in _RANKED:
            triples = self.graph.valid[:number]
            fixed = {side: ids[:number] for side, ids in self.graph.fixed_candidates("valid").items()}
            started = time.perf_counter()
            rank_both_sides(trainer.model, triples, self.graph.known, fixed_candidates=fixed)
            spent = time.perf_counter() - started
            if number == _RANKED[0]:
                self.compiled += max(0.0, started + spent - began - _QUICK_SETUP)
            elif spent > _LONG_ENOUGH or len(triples) < number:
                break
        return spent / len(triples)


def _shape(recipe: Recipe) -> Recipe:
    """Return what the time of a step depends on, and nothing else, as a recipe."""
    loss = replace(Recipe().loss, name=recipe.loss.name, relation_weight=float(recipe.loss.relation_weight > 0))
    regularizer = replace(recipe.regularizer, weight=float(recipe.regularizer.weight > 0))
    train = replace(recipe.train, lr=0.0, steps=1, schedule="constant")
    return Recipe(
        model=replace(recipe.model, init_range=0.0),
        loss=loss,
        sampling=recipe.sampling,
        regularizer=regularizer,
        train=train,
    )
