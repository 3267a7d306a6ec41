"""Training from settings to a run: the loop around the steps, validation, checkpoints, interruption, several seeds."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from pairre.evaluation.evaluate import evaluate, evaluate_triples, summarise
from pairre.graph import Graph, Side, Split, load_graph
from pairre.rules import Rule, read_rules
from pairre.runs.folder import Run, RunFolder
from pairre.settings.recipe import Recipe, resolve
from pairre.support.device import pick_device
from pairre.support.errors import GraphError, PairREError, RecipeError, RunError
from pairre.support.randomness import generator
from pairre.training.display import Display, make_display
from pairre.training.rule_constraints import usable
from pairre.training.trainer import Trainer

log = logging.getLogger("pairre")
Watcher = Callable[[int, float], None]  # is told the step and the MRR of a validation
_FINAL: tuple[Split, Split] = ("test", "valid")  # the first that is there is ranked when training ends


class TrainingInterruptedError(PairREError):
    """A signal asked training to stop; the run folder holds the step it reached."""

    def __init__(self, step: int, path: Path, signum: int) -> None:
        super().__init__(f"stopped at step {step:,}; {path} is saved: the same command with --resume continues")
        self.exit_code = 128 + signum


def train(
    graph: Graph | str | Path,
    recipe: Recipe | str | Path | None = None,
    *,
    overrides: Iterable[str] = (),
    rules: str | Path | Iterable[Rule] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    progress: bool = True,
    tensorboard: bool = False,
    on_validation: Watcher | None = None,
) -> Run:
    """Train a model on a graph and return the run with its best weights.

    Without a recipe, settings are picked from the size of the graph. With `out`, the run is kept in that folder as it
    goes and `resume=True` continues it; without, it stays in memory until `run.save(...)`. `rules` are followed as the
    recipe says (`rules.mode`); a run that is continued has its own. `on_validation` is told the step and the MRR of
    each validation; what it raises ends training.
    """
    graph = _graph(graph)
    chosen = pick_device(device)
    path = None if out is None else Path(out)
    session = Session(graph, recipe, overrides, _rules(rules), path, resume, chosen, progress, tensorboard)
    session.watcher = on_validation
    return _drive([session], chosen)[0]


def train_seeds(
    graph: Graph | str | Path,
    recipe: Recipe | str | Path | None = None,
    *,
    seeds: Iterable[int],
    overrides: Iterable[str] = (),
    rules: str | Path | Iterable[Rule] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    progress: bool = True,
) -> list[Run]:
    """Train once for each seed and return the runs; with `out`, each has its folder `seed-N` there.

    On a GPU all train at once, so that a small graph fills it; each ends as it would have ended alone. `resume=True`
    continues those that were begun.
    """
    graph = _graph(graph)
    chosen = pick_device(device)
    overrides, numbers, given = list(overrides), list(dict.fromkeys(seeds)), _rules(rules)
    if not numbers:
        raise RecipeError("seeds: name at least one")
    sessions = []
    for seed in numbers:
        path = None if out is None else Path(out) / f"seed-{seed}"
        begun = resume and path is not None and path.exists()
        settings = [*overrides, f"train.seed={seed}"]
        shown = progress and seed == numbers[0]
        sessions.append(Session(graph, recipe, settings, given, path, begun, chosen, shown, False))
        given = given and sessions[0].rules  # those that can be used: what cannot is said once
    return _drive(sessions, chosen)


def _graph(graph: Graph | str | Path) -> Graph:
    graph = graph if isinstance(graph, Graph) else load_graph(graph)
    if len(graph.train) == 0:
        raise GraphError(f"{graph.name}: train is empty")
    return graph


def _rules(rules: str | Path | Iterable[Rule] | None) -> list[Rule] | None:
    return read_rules(rules) if isinstance(rules, str | Path) else None if rules is None else list(rules)


def _drive(sessions: list[Session], device: torch.device) -> list[Run]:
    """Run sessions to their end: in turns on a GPU, where their work overlaps, else one after the other."""
    streams: list[Any] = [nullcontext() for _ in sessions]
    if device.type == "cuda" and len(sessions) > 1:
        torch.cuda.synchronize(device)  # what they share was made by the default stream
        streams = [torch.cuda.stream(torch.cuda.Stream(device)) for _ in sessions]  # type: ignore[no-untyped-call]
    stopped: list[TrainingInterruptedError] = []
    with ExitStack() as stack:
        stop = stack.enter_context(_interruptions(any(s.folder for s in sessions)))
        for session in sessions:
            stack.enter_context(session)
        waiting = [(session.run(stop), stream) for session, stream in zip(sessions, streams, strict=True)]
        while waiting:
            for steps, stream in list(waiting) if device.type == "cuda" else waiting[:1]:
                try:
                    with stream:
                        next(steps)
                except StopIteration:
                    waiting.remove((steps, stream))
                except TrainingInterruptedError as error:  # the others save their state, too
                    waiting.remove((steps, stream))
                    stopped.append(error)
        if stopped:
            raise stopped[0]
    return [session.result for session in sessions]


class Session:
    """One run from its settings to its metrics: the folder with its lock, the display, the loop."""

    watcher: Watcher | None = None

    def __init__(
        self,
        graph: Graph,
        recipe: Recipe | str | Path | None,
        overrides: Iterable[str],
        rules: list[Rule] | None,
        path: Path | None,
        resume: bool,
        device: torch.device,
        progress: bool,
        tensorboard: bool,
    ) -> None:
        self.graph, self.path, self.resume = graph, path, resume
        self.folder = _existing_folder(path) if resume else None
        self.recipe = resolve(graph, recipe or (self.folder.recipe() if self.folder else None), overrides)
        if rules is None and self.folder:
            rules = self.folder.rules() or None
        self.rules = [] if rules is None else usable(rules, graph, self.recipe)
        if self.folder:
            self.folder.check_same(graph, self.recipe, self.rules)
        elif path is not None:
            RunFolder.check_free(path)
        # Both of these refuse what cannot be done before a folder is made.
        self.trainer = Trainer(graph, self.recipe, device, self.rules)
        self.display = make_display(graph, self.recipe, device, path if tensorboard else None, progress)
        if path is not None and self.folder is None:
            self.folder = RunFolder.create(path, graph, self.recipe, self.rules)

    def __enter__(self) -> Self:
        self._open = ExitStack()
        if self.folder:
            self._open.enter_context(self.folder.locked())
        self.loop = Loop(self.trainer, self.folder, self.display, self.watcher)
        self.loop.prepare(self.resume)
        self._open.enter_context(self.display)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def run(self, stop: list[int]) -> Iterator[None]:
        """Everything until the result is there; gives way after every step."""
        yield from self.loop.run(stop)
        model = self.trainer.model.requires_grad_(False)
        self.result = Run(self.graph, self.recipe, model, self.loop.history, self.path, self.rules)
        final = [split for split in _FINAL if len(self.graph.split(split))]
        if self.folder and final:
            self.display.say(f"ranking the {final[0]} split")
            self.folder.save_metrics(evaluate(self.result, final[0]))


def _existing_folder(path: Path | None) -> RunFolder:
    if path is None:
        raise RunError("resume: say which run folder, with out")
    return RunFolder.open(path)


class Loop:
    """Steps with everything around them: reports, validations, checkpoints, early stopping."""

    def __init__(
        self, trainer: Trainer, folder: RunFolder | None, display: Display, watcher: Watcher | None = None
    ) -> None:
        self.trainer, self.folder, self.display, self.watcher = trainer, folder, display, watcher
        self.progress = trainer.progress
        self.recipe = trainer.recipe
        self.history: list[dict[str, Any]] = []
        often = 100 if trainer.block == 1 else 500  # a report waits for the device
        self.report_every = max(1, min(often, self.recipe.train.steps // 20))
        self.valid, self.given = self._validation_triples()
        self._best: dict[str, Tensor] = {}  # the best weights of a run without a folder

    def _validation_triples(self) -> tuple[Tensor, dict[Side, Tensor]]:
        """What is ranked, and the candidates that it is given."""
        triples, given = self.trainer.graph.valid, self.trainer.graph.fixed_candidates("valid")
        limit = self.recipe.train.validate_triples
        if not limit or len(triples) <= limit:
            return triples, given
        order = torch.randperm(len(triples), generator=generator(self.recipe.train.seed, "validation"))[:limit]
        return triples[order], {side: ids[order] for side, ids in given.items()}

    def prepare(self, resume: bool) -> None:
        """Take up a stored state, or store the first one."""
        if self.folder is None:
            return
        if resume and (self.folder.path / "checkpoint.safetensors").exists():
            tensors, progress = self.folder.load_checkpoint()
            self.folder.put(tensors, self.trainer.tensors(), "checkpoint.safetensors")
            self.trainer.start(progress)
            self.progress = progress
            self.folder.cut_log(self.progress.step)
            self.history = self.folder.read_log()
        elif (self.folder.path / "model.safetensors").exists():
            raise RunError(
                f"{self.folder.path}: has weights but no checkpoint to continue from, as it was merged or saved from "
                "memory; choose another --out"
            )
        else:
            self.checkpoint()

    def run(self, stop: list[int]) -> Iterator[None]:
        """Train to the end, then leave the best weights in the model; a signal in `stop` ends it early."""
        if self.progress.step:
            self.display.resumed(self.progress.step)
        if len(self.valid) == 0:
            log.warning("%s has no valid split: no early stopping, the last weights are kept", self.trainer.graph.name)
        yield from self._steps(stop)
        self.trainer.settle()
        self.checkpoint()
        if len(self.valid) == 0 and self.folder:
            self.folder.save_model(self.trainer.model)
        if self.folder:
            self.folder.load_model(self.trainer.model)
        elif self._best:
            self.trainer.model.load_state_dict(self._best)

    def _steps(self, stop: list[int]) -> Iterator[None]:
        settings = self.recipe.train
        before, started, last_checkpoint = self.progress.seconds, time.monotonic(), time.monotonic()
        since, since_time = self.progress.step, started
        while self.progress.step < settings.steps and not self._out_of_patience():
            self.trainer.step(self._steps_to_next_event())
            step, now = self.progress.step, time.monotonic()
            self.progress.seconds = before + now - started
            if step % self.report_every == 0 or step == settings.steps:
                loss, now = self.trainer.mean_loss(step - since), time.monotonic()
                rate = (step - since) * self.trainer.sampler.batch_size / max(now - since_time, 1e-9)
                self._log({"step": step, "loss": loss, "triples_per_second": round(rate)})
                since, since_time = step, now
            if len(self.valid) and (step % self.recipe.validate_every == 0 or step == settings.steps):
                self.validate()
                since_time += time.monotonic() - now
            if self.folder and (stop or time.monotonic() - last_checkpoint >= settings.checkpoint_seconds):
                self.checkpoint()
                last_checkpoint = time.monotonic()
                if stop:
                    raise TrainingInterruptedError(step, self.folder.path, stop[0])
            yield

    def _steps_to_next_event(self) -> int:
        """How many steps can be asked for at a time: no report, no validation and no end among them but the last."""
        step, ends = self.progress.step, [self.report_every, self.recipe.validate_every]
        return min(self.trainer.block, self.recipe.train.steps - step, *(every - step % every for every in ends))

    def _out_of_patience(self) -> bool:
        patience = self.recipe.train.patience
        return 0 < patience <= self.progress.validations_without_gain

    def validate(self) -> None:
        """Rank the validation triples; keep the weights if they are the best so far."""
        self.trainer.settle()
        self.trainer.check_finite()
        ranks = evaluate_triples(self.trainer.model, self.valid, self.trainer.graph.known, given=self.given)
        both = summarise(ranks)["both"]
        if both["mrr"] > self.progress.best_mrr:
            self.progress.best_mrr = both["mrr"]
            self.progress.validations_without_gain = 0
            if self.folder:
                self.folder.save_model(self.trainer.model)
            else:
                self._best = {name: value.clone() for name, value in self.trainer.model.state_dict().items()}
        else:
            self.progress.validations_without_gain += 1
        self._log({"step": self.progress.step, "valid": both, "best_mrr": self.progress.best_mrr})
        if self.watcher:
            self.watcher(self.progress.step, both["mrr"])

    def _log(self, entry: dict[str, Any]) -> None:
        entry = {**entry, "seconds": round(self.progress.seconds, 3)}
        self.history.append(entry)
        if self.folder:
            self.folder.append_log(entry)
        self.display.report(entry)

    def checkpoint(self) -> None:
        """Store all that the next step depends on."""
        self.trainer.check_finite()
        if self.folder:
            self.folder.save_checkpoint(self.trainer.tensors(), self.progress)


@contextmanager
def _interruptions(wanted: bool) -> Iterator[list[int]]:
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
