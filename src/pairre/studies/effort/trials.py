"""Try candidates: rounds of trials, in which the best go on and have more time, and the training of the best in full.

Everything is judged by validation MRR, on a graph without test triples.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from pairre.graph import Graph
from pairre.runs import Run, load_run
from pairre.settings import Recipe, resolve
from pairre.studies.effort.candidates import Candidate
from pairre.studies.effort.journal import Journal, Trial
from pairre.studies.effort.plan import VALIDATIONS, Round, readable_seconds
from pairre.support.errors import RecipeError, TrainingError
from pairre.support.memory import is_out_of_memory
from pairre.training import train

Notify = Callable[[str], None]
_WORTH_TRAINING = 0.7  # of the best validation MRR: a worse family adds nothing to an ensemble


class _OutOfTimeError(Exception):
    """Ends a training whose time is over; the best weights so far are kept."""


class Search:
    """The trials of a plan on a graph; what the journal knows already is not tried again."""

    def __init__(self, journal: Journal, graph: Graph, device: torch.device, notify: Notify) -> None:
        self.journal, self.plan, self.graph = journal, journal.plan, graph
        self.device, self.notify = device, notify

    def finalists(self) -> list[Candidate]:
        """Return what is worth training in full, the best first: one candidate of a family."""
        left, best = self.plan.candidates, dict[str, float]()
        for number, stage in enumerate(self.plan.rounds, 1):
            first = _best_of_families(left)[: self.plan.members]
            tried = [*first, *(one for one in left if one not in first)][: stage.trials]
            best |= {one.name: self._trial(one, number, stage).valid_mrr for one in tried}
            left = [*sorted(tried, key=lambda one: -best[one.name]), *(one for one in left if one not in tried)]
        worth = _WORTH_TRAINING * best.get(left[0].name, 0.0)
        return [one for one in _best_of_families(left) if best.get(one.name, 0.0) >= worth]

    def _trial(self, candidate: Candidate, number: int, stage: Round) -> Trial:
        """Return what a candidate reaches in a round."""
        if known := self.journal.find(candidate.name, number):
            return known
        steps = self.plan.trial_steps(candidate, stage)
        every = max(1, -(-steps // VALIDATIONS["trial"]))
        recipe = self._recipe(candidate, steps, {"validate_every": every, "validate_triples": stage.judged})
        started, seen, error = time.monotonic(), list[float](), ""
        until = started + 1.5 * stage.seconds  # it was slower than the plan expects

        def watch(_: int, mrr: float) -> None:
            seen.append(mrr)
            if time.monotonic() > until:
                raise _OutOfTimeError

        try:
            train(self.graph, recipe, device=str(self.device), progress=False, on_validation=watch)
        except _OutOfTimeError:
            pass
        except (TrainingError, RecipeError, MemoryError, RuntimeError) as failure:
            if not isinstance(failure, TrainingError | RecipeError) and not is_out_of_memory(failure):
                raise
            error = str(failure).splitlines()[0]
        gc.collect()  # reference cycles would keep the trial's memory until Python collects them
        spent = time.monotonic() - started
        trial = self.journal.add(Trial(candidate.name, number, steps, spent, max(seen, default=0.0), error))
        said = error or f"valid MRR {trial.valid_mrr:.4f}"
        self.notify(f"round {number}  {candidate.name:<18} {said}  {steps:,} steps, {readable_seconds(spent)}")
        return trial

    def members(self, finalists: list[Candidate], progress: bool) -> dict[str, Run]:
        """Return runs of finalists by name, trained in full; those that are in the journal are opened.

        There are as many as planned, and more if training stopped so early that there is time for another.
        """
        runs: dict[str, Run] = {}
        for number, candidate in enumerate(finalists[: self.plan.most_members]):
            path = self.journal.folder / f"member-{number}"
            if not self.journal.find(candidate.name, 0):
                remaining = min(len(finalists), self.plan.members) - number
                seconds = self._seconds_of_member(max(1, remaining))
                if remaining < 1 and seconds < self.plan.member_seconds / 2:
                    break
                seconds = max(seconds, self.plan.member_seconds / 2)
                self.notify(f"training {candidate.name} for {readable_seconds(seconds)}")
                self._train_member(candidate, path, seconds, progress)
            runs[candidate.name] = load_run(path, str(self.device))
        return runs

    def _seconds_of_member(self, remaining: int) -> float:
        """Return how long the next of some members may be trained: what is left, but for the end, is shared equally."""
        return (self.journal.left - self.plan.finish_seconds) / remaining / (2 if self.plan.held_out else 1)

    def _train_member(self, candidate: Candidate, path: Path, seconds: float, progress: bool) -> None:
        """Train a candidate into a run folder, or to its end if it was begun."""
        steps = min(self.plan.max_steps, max(1, int(seconds / self._seconds_per_step(candidate))))
        started, seen = time.monotonic(), list[float]()

        def watch(_: int, mrr: float) -> None:
            seen.append(mrr)
            if time.monotonic() - started > 1.2 * seconds:
                raise _OutOfTimeError

        begun = path.exists()
        with suppress(_OutOfTimeError):
            train(
                self.graph,
                None if begun else self._recipe(candidate, steps, {}),
                out=path,
                resume=begun,
                device=str(self.device),
                progress=progress,
                on_validation=watch,
            )
        run = load_run(path, "cpu")
        best = max(entry["valid"]["mrr"] for entry in run.history if "valid" in entry)
        spent = time.monotonic() - started
        self.journal.add(Trial(candidate.name, 0, run.recipe.train.steps, spent, best))

    def _seconds_per_step(self, candidate: Candidate) -> float:
        """Return how long a step takes, validations included: as in the candidate's last trial, else as planned."""
        last = [one for one in self.journal.trials if one.candidate == candidate.name and one.seconds > 1]
        cost = self.plan.costs[candidate.name]
        return last[-1].seconds / last[-1].steps if last else cost.per_step

    def _recipe(self, candidate: Candidate, steps: int, settings: dict[str, int]) -> Recipe:
        """Return the recipe of a candidate for so many steps."""
        more = {**settings, "steps": steps, "seed": self.journal.seed}
        return resolve(
            self.graph, None, {**candidate.settings, **{f"train.{key}": value for key, value in more.items()}}
        )


def _best_of_families(ordered: list[Candidate]) -> list[Candidate]:
    """Return the first candidate of each family."""
    found: dict[str, Candidate] = {}
    for one in ordered:
        found.setdefault(one.family, one)
    return list(found.values())
