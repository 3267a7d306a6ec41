"""What an effort will do on a graph, before it does it: which candidates, how long each is tried, what is trained.

Time is what is planned: every candidate of a round has the same, so that what is fast may take more steps. How many
these are follows from a few steps of each candidate that are timed on this device.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from pairre.graph import Graph
from pairre.models import model_class
from pairre.settings import Recipe, resolve
from pairre.studies.effort.candidates import EFFORTS, Candidate, Effort, EffortName, best_of_families, candidates
from pairre.studies.effort.probe import TOO_SLOW, Cost, Probe
from pairre.support.memory import available_bytes

LEAST_SECONDS = 10.0  # that a time may be
MAX_JUDGED = 2_000  # validation triples that judge a trial
LEAST_JUDGED = 500  # that judge a member, where there are so many
VALIDATIONS = {"trial": 3, "member": 10}
_SEARCH, _FINISH = 0.3, 0.1  # of the time; the rest is for the members
_VALIDATING = 0.25  # of the time of a trial or member, at most
_PROBING = 0.2  # of the time, at most
_KEPT = 3  # one in so many candidates of a round is tried for longer in the next
_LONGEST = 3  # times the steps of the default settings, at most
_RANKED_AT_THE_END = 6  # times that the held-out triples are ranked after the members: weights, probabilities, metrics
_ENDING = 2.0  # seconds that this takes beside the ranking
_STARTING = 5.0  # seconds in which a process starts and reads its graph, of which an effort needs only one


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
        if not self.rounds:
            who = ", ".join(one.name for one in self.candidates)
        again = ", then again on all of train" if self.held_out else ""
        yield f"  trained     {who}, {readable_seconds(self.member_seconds)} each{again}"
        yield "  ends in     one run: an ensemble, with rules or without, or one model, whatever is best"
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
    on_gpu = device.type == "cuda"
    found = Probe(graph, device)
    usual = found.cost(default)
    base = _seconds_of(chosen, graph, default, usual, on_gpu) if seconds is None else seconds
    found.try_all(candidates(chosen, on_gpu), base, started + _PROBING * base)
    if seconds is None:  # a GPU compiles its kernels once, for a training with the default settings, too
        seconds = base + (found.compiled if on_gpu else 0.0)
    slowest = max(cost.per_ranking for cost in found.costs.values())
    finish = max(_FINISH * seconds, _ENDING + _RANKED_AT_THE_END * len(graph.valid) * slowest)
    if not on_gpu:  # where kernels had to be compiled for the probes, others have to be at the end
        finish = max(finish, found.compiled)
    probed = time.monotonic() - started
    left = max(seconds - probed - finish, _SEARCH * seconds)
    tried, rounds = _rounds(graph, found, _SEARCH * left, chosen)
    most = _members_in_memory(graph, tried, device)
    members = min(chosen.members, most, len({one.family for one in tried}))
    searched = sum(stage.trials * stage.seconds for stage in rounds)
    each = (left - searched) / (members * (2 if held_out else 1))
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
        each,
        seconds - probed - left,
        int(_LONGEST * default.train.steps),
        _judged(graph, each, slowest),
        held_out,
    )


def _seconds_of(effort: Effort, graph: Graph, default: Recipe, usual: Cost | str, on_gpu: bool) -> float:
    """Return how long an effort takes that nobody gave a time."""
    least = effort.seconds_on_gpu if on_gpu else effort.seconds
    if isinstance(usual, str) or not effort.trainings:
        return least
    validating = VALIDATIONS["member"] * min(len(graph.valid), default.train.validate_triples) * usual.per_ranking
    training = usual.setup + default.train.steps * usual.per_step + validating
    return max(least, effort.trainings * training + (effort.trainings - 1) * _STARTING)


def _judged(graph: Graph, seconds: float, per_ranking: float) -> int:
    """Return how many validation triples judge a member in each validation of so many seconds of training."""
    in_time = int(_VALIDATING * seconds / VALIDATIONS["member"] / per_ranking)
    return min(len(graph.valid), resolve(graph).train.validate_triples, max(LEAST_JUDGED, in_time))


def _rounds(graph: Graph, found: Probe, seconds: float, effort: Effort) -> tuple[list[Candidate], list[Round]]:
    """Return what is tried, and the rounds: as many candidates as there is time to try each for some steps."""
    tried: list[Candidate] = []
    for one in found.candidates:
        stage = _first_round(graph, [*tried, one], found.costs, seconds / 2)
        if all(_trial_steps(found.costs[each.name], stage) >= found.least_steps for each in (*tried, one)):
            tried.append(one)
        else:
            found.left_out[one.name] = TOO_SLOW
    alone = _without_trials(found, seconds / _SEARCH, effort.members)
    if len(tried) <= len(alone) or any(one not in tried for one in alone):
        found.left_out |= {one.name: TOO_SLOW for one in found.candidates if one not in alone}
        for one in alone:
            found.left_out.pop(one.name, None)
        return alone, []
    kept = max(min(effort.members + 1, len(tried)), len(tried) // _KEPT)
    longer = Round(kept, seconds / 2 / kept, min(len(graph.valid), MAX_JUDGED))
    return tried, [_first_round(graph, tried, found.costs, seconds / 2), *[longer] * (kept < len(tried))]


def _without_trials(found: Probe, seconds: float, members: int) -> list[Candidate]:
    """Return what is trained if nothing is tried: the first of families that can be trained well, or the fastest."""
    for number in range(members, 0, -1):
        steps = {one.name: found.costs[one.name].steps_in(seconds / number, 0, 0) for one in found.candidates}
        enough = [one for one in found.candidates if steps[one.name] >= 2 * found.least_steps]
        if len(chosen := best_of_families(enough)[:number]) == number:
            return chosen
    return [max(found.candidates, key=lambda one: steps[one.name])]


def _first_round(graph: Graph, tried: list[Candidate], costs: dict[str, Cost], seconds: float) -> Round:
    """Return a round of so many seconds, of which each trial may spend a part on validation."""
    each, slowest = seconds / len(tried), max(costs[one.name].per_ranking for one in tried)
    judged = max(200, int(_VALIDATING * each / VALIDATIONS["trial"] / slowest))
    return Round(len(tried), each, min(len(graph.valid), MAX_JUDGED, judged))


def _trial_steps(cost: Cost, stage: Round) -> int:
    return cost.steps_in(stage.seconds, stage.judged, VALIDATIONS["trial"])


def _members_in_memory(graph: Graph, tried: list[Candidate], device: torch.device) -> int:
    """Return how many members of an ensemble fit into memory together, at least one."""
    sizes = []
    for one in tried:
        model = resolve(graph, None, one.settings).model
        relations = graph.num_relations * (1 + model.reciprocal)
        dim = max(model.dim, one.widest)
        sizes.append(8 * model_class(model.name).num_parameters(graph.num_entities, relations, dim))
    free = available_bytes(device)
    return len(tried) if free is None else max(1, min(len(tried), free // max(sizes)))
