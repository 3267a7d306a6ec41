"""Train a model on a graph: one run, or one for each of several seeds."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, Self

import torch

from pairre.evaluation import evaluate
from pairre.graph import Graph, Split, load_graph
from pairre.rules import Rule, read_rules
from pairre.runs import Run, RunFolder
from pairre.settings import Recipe, resolve
from pairre.support.device import pick_device
from pairre.support.errors import GraphError, RecipeError, RunError
from pairre.training.display import make_display
from pairre.training.loop import Loop, TrainingInterruptedError, ValidationCallback, collect_stop_signals
from pairre.training.rule_constraints import usable_rules
from pairre.training.step import Trainer

_ENDED: Any = object()  # what a loop yields after its last step
_FINAL: tuple[Split, Split] = ("test", "valid")  # the first that is not empty is ranked when training ends


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
    on_validation: ValidationCallback | None = None,
) -> Run:
    """Train a model on a graph and return the run with its best weights.

    Without a recipe, settings are chosen by the size of the graph. With `out`, the run is stored in that folder while
    it trains, and `resume=True` continues it; without, it stays in memory until `run.save(...)`. `rules` are obeyed as
    the recipe says (`rules.mode`); a run that is resumed has its own. `on_validation` receives the step and the MRR of
    each validation; an exception that it raises ends training.
    """
    graph, chosen = _load(graph), pick_device(device)
    session = Session(
        graph,
        recipe,
        overrides,
        _read(rules),
        path=None if out is None else Path(out),
        resume=resume,
        device=chosen,
        progress=progress,
        tensorboard=tensorboard,
    )
    session.on_validation = on_validation
    return _run_together([session], chosen)[0]


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

    On a GPU all train at once, so that a small graph fills it; on a CPU one after the other. Each ends as it would have
    ended alone. `resume=True` continues those that were begun.
    """
    graph, chosen = _load(graph), pick_device(device)
    overrides, numbers, given_rules = list(overrides), list(dict.fromkeys(seeds)), _read(rules)
    if not numbers:
        raise RecipeError("seeds: name at least one")
    paths = {seed: None if out is None else Path(out) / f"seed-{seed}" for seed in numbers}
    begun = {seed: bool(resume and path and path.exists()) for seed, path in paths.items()}
    for seed, path in paths.items():
        if path and not begun[seed]:
            RunFolder.check_free(path)
    if given_rules is not None:  # here, so that a warning about rules that are left out appears once
        given_rules = usable_rules(given_rules, graph, resolve(graph, recipe, overrides, with_rules=True))
    together = chosen.type == "cuda"

    def make_session(seed: int) -> Session:
        return Session(
            graph,
            recipe,
            [*overrides, f"train.seed={seed}"],
            given_rules,
            path=paths[seed],
            resume=begun[seed],
            device=chosen,
            progress=progress and (not together or seed == numbers[0]),
        )

    if together:
        return _run_together([make_session(seed) for seed in numbers], chosen)
    return [_run_together([make_session(seed)], chosen)[0] for seed in numbers]


def _load(graph: Graph | str | Path) -> Graph:
    graph = graph if isinstance(graph, Graph) else load_graph(graph)
    if len(graph.train) == 0:
        raise GraphError(f"{graph.name}: train is empty")
    return graph


def _read(rules: str | Path | Iterable[Rule] | None) -> list[Rule] | None:
    return read_rules(rules) if isinstance(rules, str | Path) else None if rules is None else list(rules)


class Session:
    """One run from its settings to its metrics: the trainer, the folder with its lock, the display, the loop."""

    on_validation: ValidationCallback | None = None

    def __init__(
        self,
        graph: Graph,
        recipe: Recipe | str | Path | None,
        overrides: Iterable[str],
        rules: list[Rule] | None,
        *,
        path: Path | None,
        resume: bool,
        device: torch.device,
        progress: bool,
        tensorboard: bool = False,
    ) -> None:
        self.graph, self.path, self.resume = graph, path, resume
        self.folder = _existing_folder(path) if resume else None
        if rules is None and self.folder:
            rules = self.folder.rules() or None
        chosen = recipe or (self.folder.recipe() if self.folder else None)
        self.recipe = resolve(graph, chosen, overrides, with_rules=bool(rules))
        self.rules = [] if rules is None else usable_rules(rules, graph, self.recipe)
        if self.folder:
            self.folder.check_same(graph, self.recipe, self.rules)
        elif path is not None:
            RunFolder.check_free(path)
        # The trainer and the display raise errors before a folder is made.
        self.trainer = Trainer(graph, self.recipe, device, self.rules)
        self.display = make_display(graph, self.recipe, device, path if tensorboard else None, progress)
        if path is not None and self.folder is None:
            self.folder = RunFolder.create(path, graph, self.recipe, self.rules)

    def __enter__(self) -> Self:
        self._open = ExitStack()
        if self.folder:
            self._open.enter_context(self.folder.locked())
        self.loop = Loop(self.trainer, self.folder, self.display, self.on_validation)
        self.loop.prepare(self.resume)
        self._open.enter_context(self.display)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def finish(self) -> Run:
        """Return the trained run; if it has a folder, rank its test split and store the metrics."""
        model = self.trainer.model.requires_grad_(False)
        run = Run(self.graph, self.recipe, model, self.loop.history, self.path, self.rules)
        final = [split for split in _FINAL if len(self.graph.split(split))]
        if self.folder and final:
            self.display.say(f"ranking the {final[0]} split")
            self.folder.save_metrics(evaluate(run, final[0]))
        return run


def _existing_folder(path: Path | None) -> RunFolder:
    if path is None:
        raise RunError("resume: say which run folder, with out")
    return RunFolder.open(path)


def _run_together(sessions: list[Session], device: torch.device) -> list[Run]:
    """Run sessions to their end and return their runs; several take turns, so that their work overlaps on a GPU."""
    streams: list[AbstractContextManager[Any]] = [nullcontext() for _ in sessions]
    if len(sessions) > 1:
        torch.cuda.synchronize(device)  # what they share was made by the default stream
        streams = [torch.cuda.stream(torch.cuda.Stream(device)) for _ in sessions]  # type: ignore[no-untyped-call]
    runs: dict[int, Run] = {}
    stopped: list[TrainingInterruptedError] = []
    with ExitStack() as stack:
        signals = stack.enter_context(collect_stop_signals(any(s.folder for s in sessions)))
        for session in sessions:
            stack.enter_context(session)
        waiting = {i: session.loop.run(signals) for i, session in enumerate(sessions)}
        while waiting:
            for i, steps in list(waiting.items()):
                try:
                    with streams[i]:
                        if next(steps, _ENDED) is _ENDED:
                            del waiting[i]
                            runs[i] = sessions[i].finish()
                except TrainingInterruptedError as error:  # the others store their state, too
                    del waiting[i]
                    stopped.append(error)
        if stopped:
            raise stopped[0]
    return [runs[i] for i in range(len(sessions))]
