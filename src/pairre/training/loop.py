"""The loop around the steps: reports, validations, checkpoints, early stopping, interruption."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pairre.evaluation import rank_both_sides, summarise
from pairre.graph import Side
from pairre.runs import RunFolder, weight_files
from pairre.support.errors import PairREError, RunError
from pairre.support.randomness import generator
from pairre.support.text import shell_word
from pairre.training.display import Display
from pairre.training.state import State, StateOverProcesses, WholeState
from pairre.training.step import Trainer

log = logging.getLogger("pairre")
ValidationCallback = Callable[[int, float], None]  # receives the step and the MRR of a validation


class TrainingInterruptedError(PairREError):
    """A signal asked training to stop; the run folder holds the step that it reached."""

    def __init__(
        self, step: int, path: Path, signum: int, advice: str = "the same command with --resume continues"
    ) -> None:
        super().__init__(f"stopped at step {step:,}; {path} is saved: {advice}")
        self._arguments, self.exit_code = (step, path, signum), 128 + signum

    def with_advice(self, advice: str) -> TrainingInterruptedError:
        """Return the same error with other words on how to continue."""
        return TrainingInterruptedError(*self._arguments, advice)


class Loop:
    """The steps of one run, and everything that happens between them."""

    def __init__(
        self,
        trainer: Trainer,
        folder: RunFolder | None,
        display: Display,
        on_validation: ValidationCallback | None = None,
    ) -> None:
        self.trainer, self.folder, self.display, self.on_validation = trainer, folder, display, on_validation
        self.progress, self.settings = trainer.progress, trainer.recipe.train
        self.history: list[dict[str, Any]] = []
        most = 100 if trainer.steps_per_launch == 1 else 500  # a report waits for the device
        self.report_every = max(1, min(most, self.settings.steps // 20))
        self.validate_every = trainer.recipe.validate_every
        self.valid, self.fixed_candidates = self._validation_triples()
        self.processes = trainer.processes
        self.state: State = (
            StateOverProcesses(trainer, folder) if folder and self.processes.size > 1 else WholeState(trainer, folder)
        )

    def _validation_triples(self) -> tuple[Tensor, dict[Side, Tensor]]:
        """Return the triples that validations rank, and their fixed candidates if the benchmark has some."""
        triples, candidates = self.trainer.graph.valid, self.trainer.graph.fixed_candidates("valid")
        limit = self.settings.validate_triples
        if not limit or len(triples) <= limit:
            return triples, candidates
        order = torch.randperm(len(triples), generator=generator(self.settings.seed, "validation"))[:limit]
        return triples[order], {side: ids[order] for side, ids in candidates.items()}

    def resume(self, changed: Collection[str] = ()) -> None:
        """Load the checkpoint of the run folder; keys of the recipe that `changed` since then take effect."""
        assert self.folder
        if checkpoint := self.folder.checkpoint:
            progress = self.folder.stored_progress()
            if progress.step > self.settings.steps:
                raise RunError(
                    f"{checkpoint}: damaged: it is at step {progress.step:,}, and the recipe has "
                    f"{self.settings.steps:,}"
                )
            if not {"train.steps", "train.patience"}.isdisjoint(changed):
                progress.validations_without_gain = 0  # what was too few before need not be now
            if "train.validate_triples" in changed and progress.best_mrr >= 0:
                self.state.load_best()
                progress.best_mrr = self._validation_metrics()["mrr"]  # the best so far, on the triples that count now
            self.state.load_checkpoint()
            self.trainer.resume_from(progress)
            self.progress = progress
            with self.processes.together():
                if self.processes.is_first:
                    self.folder.log.cut(self.progress.step)
            self.history = self.folder.log.entries()
            if changed:
                self.state.store_checkpoint()
        elif weight_files(self.folder.path):
            path = self.folder.path
            raise RunError(
                f"{path}: has weights but no checkpoint to continue from, as it was merged, extended or saved from "
                f"memory; pairre train GRAPH --init-from {shell_word(path)} --out NEW starts from its vectors"
            )

    def run(self, stop_signals: list[int]) -> Iterator[None]:
        """Train to the end, then leave the best weights in the model; yield after each launch of steps.

        A signal in `stop_signals` ends training after a checkpoint, with a TrainingInterruptedError.
        """
        if self.progress.step:
            self.display.resumed(self.progress.step)
        if len(self.valid) == 0:
            log.warning("%s has no valid split: no early stopping, the last weights are kept", self.trainer.graph.name)
        started = time.monotonic() - self.progress.seconds
        self._last_checkpoint = self._last_report = time.monotonic()
        patience = self.settings.patience or math.inf
        try:
            while self.progress.step < self.settings.steps and self.progress.validations_without_gain < patience:
                self.trainer.advance(1 if self.trainer.steps_per_launch == 1 else self._steps_until_event())
                self.progress.seconds = time.monotonic() - started
                self._handle_events(stop_signals)
                yield
            if self._stops_early:
                self._announce_early_stop()
            self._finish()
        finally:
            self.state.give_up_checkpoint()

    @property
    def _stops_early(self) -> bool:
        """Whether training ends before its last step, because validations have not become better for too long."""
        patience = self.settings.patience or math.inf
        return self.progress.step < self.settings.steps and self.progress.validations_without_gain >= patience

    def _announce_early_stop(self) -> None:
        """Say that training ended before its last step, and why."""
        of_best = [e["step"] for e in self.history if "valid" in e and e["valid"]["mrr"] == self.progress.best_mrr]
        best = f"; the best was at step {of_best[0]:,}" if of_best else ""
        self.display.announce(
            f"stopped early at step {self.progress.step:,} of {self.settings.steps:,}: "
            f"{self.progress.validations_without_gain} validations without a better MRR{best} (train.patience)"
        )

    def _steps_until_event(self) -> int:
        """Return how many steps can be launched at once: only the last may be followed by a report or a validation."""
        step = self.progress.step
        events = (self.settings.steps, self.report_every, self.validate_every)
        return min(self.trainer.steps_per_launch, *(every - step % every for every in events))

    def _handle_events(self, stop_signals: list[int]) -> None:
        """Report, validate and store a checkpoint where it is time to."""
        step, is_last = self.progress.step, self.progress.step == self.settings.steps
        if step % self.report_every == 0 or is_last:
            self._report()
        if len(self.valid) and (step % self.validate_every == 0 or is_last):
            before = time.monotonic()
            self.state.finish_checkpoint()  # which has a copy of the weights, and so has validation
            self.validate()
            self._last_report += time.monotonic() - before  # speed is that of training alone
        due = time.monotonic() - self._last_checkpoint >= self.settings.checkpoint_seconds
        signum = stop_signals[0] if stop_signals else 0
        writing = self.state.pending and self.state.is_writing()
        if self.processes.size > 1:  # which stop and store as one, though their clocks and signals differ
            signum, due, writing = self.processes.greatest(signum, due, writing)
        if self.state.pending and not writing:
            self.state.finish_checkpoint()
        if self.folder and signum:
            self.checkpoint()
            raise TrainingInterruptedError(step, self.folder.path, signum)
        if self.folder and due and not writing:
            self.trainer.check_finite()
            self.state.begin_checkpoint()
            self._last_checkpoint = time.monotonic()

    def _report(self) -> None:
        """Log the mean loss and the speed since the last report."""
        num_steps = self.progress.step - self.progress.reported_step
        loss, now = self.trainer.mean_loss(num_steps), time.monotonic()
        rate = num_steps * self.trainer.sampler.batch_size / max(now - self._last_report, 1e-9)
        self._log({"step": self.progress.step, "loss": loss, "triples_per_second": round(rate)})
        self.progress.reported_step, self._last_report = self.progress.step, now

    def validate(self) -> None:
        """Rank the validation triples; keep the weights if they are the best so far."""
        self.trainer.flush()
        self.trainer.check_finite()
        with self.state.shown():
            both = self._validation_metrics()
            if both["mrr"] > self.progress.best_mrr:
                self.progress.best_mrr = both["mrr"]
                self.progress.validations_without_gain = 0
                self.state.keep_best()
            else:
                self.progress.validations_without_gain += 1
        entry = {"step": self.progress.step, "valid": both, "best_mrr": self.progress.best_mrr}
        self._log({**entry, "stopped_early": True} if self._stops_early else entry)
        if self.on_validation:
            self.on_validation(self.progress.step, both["mrr"])

    def _validation_metrics(self) -> dict[str, float]:
        """Return the metrics of both sides that the model has on the validation triples."""
        processes = rank_both_sides(
            self.trainer.model, self.valid, self.trainer.graph.known, fixed_candidates=self.fixed_candidates
        )
        return summarise(processes)["both"]

    def _finish(self) -> None:
        """Leave the best weights in the model."""
        self.trainer.flush()
        self.checkpoint()
        if self.folder and len(self.valid) == 0:
            with self.state.shown():
                self.state.keep_best()
        self.state.load_best()

    def _log(self, entry: dict[str, Any]) -> None:
        entry = {**entry, "seconds": round(self.progress.seconds, 3)}
        self.history.append(entry)
        if self.folder and self.processes.is_first:
            self.folder.log.append(entry)
        self.display.report(entry)

    def checkpoint(self) -> None:
        """Store everything that the next step depends on."""
        self.trainer.check_finite()
        self.state.store_checkpoint()


@contextmanager
def collect_stop_signals(wanted: bool) -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying in the middle of a step; a second signal acts at once."""
    received: list[int] = []
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(signum: int, _: object) -> None:
        received.append(signum)
        signal.signal(signum, previous[signum])

    previous: dict[int, Any] = {int(s): signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
