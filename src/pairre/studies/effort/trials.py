"""Try candidates: rounds of trials, in which the best go on and have more time, and the training of the best in full.

Everything is judged by validation MRR, on a graph without test triples.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from pairre.graph import Graph
from pairre.models import model_class
from pairre.runs import Run, load_run
from pairre.settings import Recipe, resolve
from pairre.studies.effort.candidates import Candidate, best_of_families
from pairre.studies.effort.journal import Journal, Trial
from pairre.studies.effort.plan import VALIDATIONS, Round, readable_seconds
from pairre.support.errors import RecipeError, TrainingError
from pairre.support.memory import available_bytes, is_out_of_memory
from pairre.training import train

Notify = Callable[[str], None]
_EPOCHS = 30  # of a training, beyond which twice as many features bring more than twice as many epochs
_BYTES_OF_A_NUMBER = 32  # with its gradient, the state of its optimiser and copies
_SHORT = {"cuda": 60.0}  # seconds by device, within which writing the best weights to disk would take too large a part
_LONG_TRIAL = 1.0  # seconds, so that what comes before the first step and after the last matters little
_TELLING_STEPS = 1_000  # of a trial: in fewer, what starts slowly looks worse than it is
_WORTH_TRAINING = 0.7  # of the best validation MRR: a worse family adds nothing to an ensemble


class _EnoughError(Exception):
    """Ends a training whose time or last step is over; the best weights so far are kept."""


class Search:
    """The trials of a plan on a graph; what the journal knows already is not tried again."""

    def __init__(self, journal: Journal, graph: Graph, device: torch.device, notify: Notify) -> None:
        self.journal, self.plan, self.graph = journal, journal.plan, graph
        self.device, self.notify = device, notify

    def finalists(self) -> list[Candidate]:
        """Return what is worth training in full, the best first: one candidate of a family."""
        left, best = self.plan.candidates, dict[str, float]()
        for number, stage in enumerate(self.plan.rounds, 1):
            first = best_of_families(left)[: self.plan.members]
            tried = [*first, *(one for one in left if one not in first)][: stage.trials]
            best |= {one.name: self._trial(one, number, stage).valid_mrr for one in tried}
            left = [*sorted(tried, key=lambda one: -best[one.name]), *(one for one in left if one not in tried)]
        firsts = best_of_families(left)
        return [one for one in firsts if self._is_worth_training(one, best.get(left[0].name, 0.0))] or firsts[:1]

    def _is_worth_training(self, candidate: Candidate, best: float) -> bool:
        """Return whether a candidate comes near the best MRR, or its steps were too few to say that it does not."""
        tried = [one for one in self.journal.trials if one.candidate == candidate.name and one.round]
        if not tried:
            return True
        is_near = tried[-1].valid_mrr >= _WORTH_TRAINING * best
        return not tried[-1].error and (is_near or tried[-1].steps < _TELLING_STEPS)

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
                raise _EnoughError

        try:
            train(self.graph, recipe, device=str(self.device), progress=False, on_validation=watch)
        except _EnoughError:
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
                runs[candidate.name] = self._member(candidate, path, seconds, progress)
                gc.collect()  # of the optimiser, too
            else:
                runs[candidate.name] = load_run(path, str(self.device))
        return runs

    def _seconds_of_member(self, remaining: int) -> float:
        """Return how long the next of some members may be trained: what is left, but for the end, is shared equally."""
        return (self.journal.left - self.plan.finish_seconds) / remaining / (2 if self.plan.held_out else 1)

    def _member(self, candidate: Candidate, path: Path, seconds: float, progress: bool) -> Run:
        """Return the run of a candidate that was trained in full; one that was begun is trained to its end."""
        recipe = self._recipe_of_member(candidate, seconds)
        started = time.monotonic()
        if seconds < _SHORT.get(self.device.type, 0.0) and not path.exists():
            run = train(self.graph, recipe, device=str(self.device), progress=progress)
            run.save(path)
        else:
            self._train_in_folder(recipe, path, started + 1.2 * seconds, progress)
            run = load_run(path, str(self.device))
        best = max(entry["valid"]["mrr"] for entry in run.history if "valid" in entry)
        spent = time.monotonic() - started
        self.journal.add(Trial(candidate.name, 0, run.recipe.train.steps, spent, best))
        return run

    def _train_in_folder(self, recipe: Recipe, path: Path, until: float, progress: bool) -> None:
        """Train in a run folder, from which training goes on if it is there, to the end or until its time is over."""
        begun = path.exists()

        def watch(step: int, _: float) -> None:
            # After its last step, a run in a folder would be ranked for metrics and probabilities of its own.
            if step >= recipe.train.steps or time.monotonic() > until:
                raise _EnoughError

        with suppress(_EnoughError):
            train(
                self.graph,
                None if begun else recipe,
                out=path,
                resume=begun,
                device=str(self.device),
                progress=progress,
                on_validation=watch,
            )

    def _recipe_of_member(self, candidate: Candidate, seconds: float) -> Recipe:
        """Return the recipe of a candidate for so many seconds; what has time for many epochs becomes wider."""
        cost = replace(self.plan.costs[candidate.name], per_step=self._seconds_per_step(candidate))
        steps = cost.steps_in(seconds, self.plan.judged, VALIDATIONS["member"])
        recipe = self._recipe(candidate, 1, {"validate_triples": self.plan.judged})
        per_epoch = 2 * -(-len(self.graph.train) // recipe.train.batch)
        dim = recipe.model.dim
        while 2 * dim <= candidate.widest and steps >= 2 * _EPOCHS * per_epoch and self._fits(recipe, 2 * dim):
            dim, steps = 2 * dim, steps // 2  # a step takes twice as long
        train_recipe = replace(recipe.train, steps=min(self.plan.max_steps, steps))
        return replace(recipe, model=replace(recipe.model, dim=dim), train=train_recipe)

    def _fits(self, recipe: Recipe, dim: int) -> bool:
        """Return whether there is ample memory for a model with so many features in training."""
        relations = self.graph.num_relations * (1 + recipe.model.reciprocal)
        numbers = model_class(recipe.model.name).num_parameters(self.graph.num_entities, relations, dim)
        free = available_bytes(self.device)
        return free is None or _BYTES_OF_A_NUMBER * numbers < free

    def _seconds_per_step(self, candidate: Candidate) -> float:
        """Return how long a step takes: as in the candidate's last trial if that was long enough, else as planned."""
        cost = self.plan.costs[candidate.name]
        last = [one for one in self.journal.trials if one.candidate == candidate.name and one.seconds > _LONG_TRIAL]
        return (last[-1].seconds - cost.setup) / last[-1].steps if last else cost.per_step

    def _recipe(self, candidate: Candidate, steps: int, settings: dict[str, int]) -> Recipe:
        """Return the recipe of a candidate for so many steps."""
        more = {**settings, "steps": steps, "seed": self.journal.seed}
        return resolve(
            self.graph, None, {**candidate.settings, **{f"train.{key}": value for key, value in more.items()}}
        )
