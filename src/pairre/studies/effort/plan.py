"""What an effort will do on a graph, before it does it: which candidates, how long each is tried, what is trained.

Time is what is planned: every candidate of a round has the same, so that what is fast may take more steps. How many
these are follows from a few steps of each candidate that are timed on this device.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from pairre.evaluation import rank_both_sides
from pairre.graph import Graph
from pairre.models import model_class
from pairre.settings import Recipe, resolve
from pairre.studies.effort.candidates import EFFORTS, Candidate, Effort, EffortName, candidates
from pairre.support.errors import RecipeError, TrainingError
from pairre.support.memory import available_bytes, is_out_of_memory
from pairre.training.step import Trainer

LEAST_SECONDS = 10.0  # that a time may be
MAX_JUDGED = 2_000  # validation triples that judge a trial
VALIDATIONS = {"trial": 3, "member": 10}
_TOO_SLOW = "too slow for the time"
_LEAST_STEPS = 60  # of a trial
_SEARCH, _FINISH = 0.3, 0.1  # of the time; the rest is for the members
_PLAIN_STEPS = 8  # at least as many as a GPU takes before it captures one
_PROBING = 0.2  # of the time, at most
_KEPT = 3  # one in so many candidates of a round is tried for longer in the next
_LONGEST = 3  # times the steps of the default settings, at most
_RANKED_AT_THE_END = 6  # times that the held-out triples are ranked after the members: weights, probabilities, metrics


@dataclass(frozen=True)
class Cost:
    """Seconds that a candidate takes on a device."""

    setup: float  # until its first step
    per_step: float
    per_ranking: float  # of one validation triple, both sides

    def steps_in(self, seconds: float, judged: int, validations: int) -> int:
        """Return how many steps can be taken in a time, validations included; at least 1."""
        return max(1, int((seconds - self.setup - validations * judged * self.per_ranking) / self.per_step))


@dataclass(frozen=True)
class Round:
    """A round of trials: of so many candidates, each for so long."""

    trials: int
    seconds: float
    judged: int  # validation triples


@dataclass(frozen=True)
class EffortPlan:
    """What will be done; it is printed before, and kept in `plan.json`."""

    effort: EffortName
    graph: str
    device: str
    seconds: float  # in all
    candidates: list[Candidate]
    costs: dict[str, Cost]  # by candidate
    left_out: dict[str, str]  # candidates that are not tried, and why
    rounds: list[Round]
    members: int  # that are trained in full
    most_members: int  # that fit into memory together: so many if there is time left
    member_seconds: float  # for each, if there are so many
    finish_seconds: float  # for weights, rules, probabilities and metrics
    max_steps: int
    judged: int  # validation triples that choose what is kept
    held_out: bool  # of train, because there is no validation split

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can represent."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> EffortPlan:
        """Return the plan of such values."""
        return cls(
            **{
                **values,
                "candidates": [Candidate(**one) for one in values["candidates"]],
                "costs": {name: Cost(**cost) for name, cost in values["costs"].items()},
                "rounds": [Round(**one) for one in values["rounds"]],
            }
        )

    def trial_steps(self, candidate: Candidate, stage: Round) -> int:
        """Return how many steps a trial takes."""
        return min(self.max_steps, _trial_steps(self.costs[candidate.name], stage))

    def lines(self) -> Iterator[str]:
        """Yield the plan as text."""
        about = readable_seconds(self.seconds)
        yield f"plan of --effort {self.effort} for {self.graph} on {self.device}: at most about {about}"
        what = "triples that are held out of train" if self.held_out else "triples of the validation split"
        yield f"  judged by   {self.judged:,} {what}; the test split takes no part"
        counts = dict.fromkeys((one.family for one in self.candidates), 0)
        for one in self.candidates:
            counts[one.family] += 1
        yield f"  candidates  {', '.join(f'{family} ×{count}' for family, count in counts.items())}"
        for number, stage in enumerate(self.rounds, 1):
            tried = self.candidates if number == 1 else []
            steps = [self.trial_steps(one, stage) for one in tried]
            taken = f" ({min(steps):,} to {max(steps):,} steps)" if steps else ""
            which = f"{stage.trials} trials of" if number == 1 else f"the best {stage.trials} again, for"
            yield f"  round {number}     {which} {readable_seconds(stage.seconds)}{taken}"
        who = f"the best of up to {self.members} families" if self.members > 1 else "the best candidate"
        again = ", then again on all of train" if self.held_out else ""
        yield f"  trained     {who}, {readable_seconds(self.member_seconds)} each{again}"
        yield "  ends in     one run: an ensemble, with rules if train has some, or one model if that is better"
        for why in dict.fromkeys(self.left_out.values()):
            yield f"  left out    {', '.join(name for name, said in self.left_out.items() if said == why)}: {why}"


def readable_seconds(seconds: float) -> str:
    """Return a time as people say it, such as `50 s` or `1 h 20 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = round(whole / 60)
    hours, minutes = divmod(minutes, 60)
    return " ".join([*[f"{hours} h"] * bool(hours), *[f"{minutes} min"] * bool(minutes)])


def make_effort_plan(
    graph: Graph, effort: EffortName, seconds: float | None, device: torch.device, *, held_out: bool
) -> EffortPlan:
    """Return what an effort will do on a graph without test triples, with a validation split, in so many seconds.

    Without a number of seconds, the effort says how long it takes.
    """
    started, chosen, default = time.monotonic(), EFFORTS[effort], resolve(graph)
    found = _Probe(graph, device)
    usual = found.cost(default)
    if seconds is None:
        seconds = chosen.seconds
        if isinstance(usual, Cost):
            training = default.train.steps * usual.per_step + VALIDATIONS["member"] * _judged(graph) * usual.per_ranking
            seconds = max(seconds, chosen.trainings * training)
    found.try_all(candidates(chosen), seconds, started + _PROBING * seconds)
    slowest = max(cost.per_ranking for cost in found.costs.values())
    probed = time.monotonic() - started
    # Where kernels had to be compiled for the probes, others have to be at the end.
    finish = max(_FINISH * seconds, _RANKED_AT_THE_END * len(graph.valid) * slowest, probed)
    left = max(seconds - probed - finish, _SEARCH * seconds)
    tried, rounds = _rounds(graph, found, _SEARCH * left, chosen)
    most = _members_in_memory(graph, tried)
    members = min(chosen.members, most, len({one.family for one in tried}))
    searched = sum(stage.trials * stage.seconds for stage in rounds)
    return EffortPlan(
        effort,
        graph.name,
        str(device),
        seconds,
        tried,
        {one.name: found.costs[one.name] for one in tried},
        found.left_out,
        rounds,
        members,
        most,
        (left - searched) / (members * (2 if held_out else 1)),
        seconds - probed - left,
        int(_LONGEST * default.train.steps),
        _judged(graph),
        held_out,
    )


def _judged(graph: Graph) -> int:
    return min(len(graph.valid), resolve(graph).train.validate_triples)


def _rounds(graph: Graph, found: _Probe, seconds: float, effort: Effort) -> tuple[list[Candidate], list[Round]]:
    """Return what is tried, and the rounds: as many candidates as there is time to try each for some steps."""
    tried: list[Candidate] = []
    for one in found.candidates:
        stage = _first_round(graph, [*tried, one], found.costs, seconds / 2)
        if all(_trial_steps(found.costs[each.name], stage) >= _LEAST_STEPS for each in (*tried, one)):
            tried.append(one)
        else:
            found.left_out[one.name] = _TOO_SLOW
    if len(tried) < 2:  # no trials: the first that can be trained well in all of the time, or else the fastest
        steps = {one.name: found.costs[one.name].steps_in(seconds / _SEARCH, 0, 0) for one in found.candidates}
        only = next((one for one in found.candidates if steps[one.name] >= 2 * _LEAST_STEPS), None)
        only = only or max(found.candidates, key=lambda one: steps[one.name])
        found.left_out |= {one.name: _TOO_SLOW for one in found.candidates}
        del found.left_out[only.name]
        return [only], []
    kept = max(min(effort.members + 1, len(tried)), len(tried) // _KEPT)
    longer = Round(kept, seconds / 2 / kept, min(len(graph.valid), MAX_JUDGED))
    return tried, [_first_round(graph, tried, found.costs, seconds / 2), *[longer] * (kept < len(tried))]


def _first_round(graph: Graph, tried: list[Candidate], costs: dict[str, Cost], seconds: float) -> Round:
    """Return a round of so many seconds, of which each trial may spend a quarter on validation."""
    each, slowest = seconds / len(tried), max(costs[one.name].per_ranking for one in tried)
    judged = max(200, int(each / 4 / VALIDATIONS["trial"] / slowest))
    return Round(len(tried), each, min(len(graph.valid), MAX_JUDGED, judged))


def _trial_steps(cost: Cost, stage: Round) -> int:
    return cost.steps_in(stage.seconds, stage.judged, VALIDATIONS["trial"])


def _members_in_memory(graph: Graph, tried: list[Candidate]) -> int:
    """Return how many members of an ensemble fit into memory together, at least one."""
    sizes = []
    for one in tried:
        model = resolve(graph, None, one.settings).model
        relations = graph.num_relations * (1 + model.reciprocal)
        sizes.append(8 * model_class(model.name).num_parameters(graph.num_entities, relations, model.dim))
    free = available_bytes()
    return len(tried) if free is None else max(1, min(len(tried), free // max(sizes)))


class _Probe:
    """Times a few steps of each candidate; one that is like another but for its numbers takes as long."""

    def __init__(self, graph: Graph, device: torch.device) -> None:
        self.graph, self.device = graph, device
        self.candidates: list[Candidate] = []
        self.costs: dict[str, Cost] = {}
        self.left_out: dict[str, str] = {}
        self._known: dict[Recipe, Cost | str] = {}

    def try_all(self, tried: list[Candidate], seconds: float, until: float) -> None:
        """Find the cost of each candidate, or why it is left out; a TrainingError if nothing can be tried.

        What cannot take enough steps in all of the `seconds` is not timed, nor is anything new after a time `until`,
        unless there is nothing else.
        """
        for one in tried:
            recipe = resolve(self.graph, None, one.settings)
            late = time.monotonic() > until and self.costs
            is_slow = late or self._least_seconds(recipe) > seconds
            self._add(one, _TOO_SLOW if is_slow and _shape(recipe) not in self._known else self.cost(recipe))
        for one in tried:
            if not self.candidates:  # one is trained in any case
                self._add(one, self.cost(resolve(self.graph, None, one.settings)))
        if not self.candidates:
            name, why = next(iter(self.left_out.items()))
            raise TrainingError(f"{self.graph.name}: nothing can be trained; {name}: {why}")

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
        return _LEAST_STEPS * usual.per_step * self._scores(recipe) / self._scores(default)

    def _scores(self, recipe: Recipe) -> int:
        return recipe.train.batch * (recipe.sampling.negatives or self.graph.num_entities) * recipe.model.dim

    def _cost(self, recipe: Recipe) -> Cost | str:
        """Return what a candidate takes, or why it cannot be trained."""
        try:
            self._warm_trainer(recipe)  # kernels are compiled, which only the first training has to wait for
            started = time.perf_counter()
            trainer = self._warm_trainer(recipe)
            setup = time.perf_counter() - started
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

    def _warm_trainer(self, recipe: Recipe) -> Trainer:
        """Return a trainer that has taken its first steps, which on a GPU are captured."""
        trainer = Trainer(self.graph, recipe, self.device)
        first = 2 if trainer.steps_per_launch == 1 else 2 * trainer.steps_per_launch + _PLAIN_STEPS
        trainer.advance(first)
        trainer.mean_loss(first)  # waits for the device
        return trainer

    def _seconds_to_rank(self, trainer: Trainer) -> float:
        """Return how long the ranks of a validation triple take; the first of them compile kernels."""
        for number in (20, 200):
            triples = self.graph.valid[:number]
            fixed = {side: ids[:number] for side, ids in self.graph.fixed_candidates("valid").items()}
            started = time.perf_counter()
            rank_both_sides(trainer.model, triples, self.graph.known, fixed_candidates=fixed)
        return (time.perf_counter() - started) / len(triples)


def _shape(recipe: Recipe) -> Recipe:
    """Return what the time of a step depends on, and nothing else, as a recipe."""
    loss = replace(Recipe().loss, name=recipe.loss.name, relation_weight=float(recipe.loss.relation_weight > 0))
    regularizer = replace(recipe.regularizer, weight=float(recipe.regularizer.weight > 0))
    train = replace(recipe.train, lr=0.0, steps=1)
    return Recipe(
        model=replace(recipe.model, init_range=0.0),
        loss=loss,
        sampling=recipe.sampling,
        regularizer=regularizer,
        train=train,
    )
