"""Train a model on a graph: one run, or one for each of several seeds."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, Self

import torch

from pairre.evaluation import calibration_of, evaluate
from pairre.graph import Graph, Split, load_graph
from pairre.graph.leakage import describe_leakage
from pairre.rules import Rule, read_rules
from pairre.runs import InitVectors, Run, RunFolder, VectorSource, load_run, read_init_vectors
from pairre.runs.changes import changed_keys, replace_recipe
from pairre.runs.folder import PLAIN_FORMAT
from pairre.settings import Overrides, Recipe, resolve, settings_list
from pairre.support.device import pick_device
from pairre.support.errors import GraphError, RecipeError, RunError
from pairre.support.ranks import ALONE, Ranks, join_ranks
from pairre.support.text import shell_word
from pairre.training.display import make_display
from pairre.training.distillation import Teacher
from pairre.training.loop import Loop, TrainingInterruptedError, ValidationCallback, collect_stop_signals
from pairre.training.over_ranks import check_over_ranks, starts_again
from pairre.training.rule_constraints import usable_rules
from pairre.training.step import Trainer
from pairre.training.warm_start import copy_known_rows, fit_to_start, start_of

log = logging.getLogger("pairre")
_ENDED: Any = object()  # what a loop yields after its last step
_FINAL: tuple[Split, Split] = ("test", "valid")  # the first that is not empty is ranked when training ends


def train(
    graph: Any = None,
    recipe: Recipe | str | Path | None = None,
    *,
    overrides: Overrides = (),
    rules: str | Path | Iterable[Rule] | None = None,
    init_from: Run | str | Path | None = None,
    init_vectors: VectorSource | None = None,
    freeze: bool = False,
    teacher: Run | str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    progress: bool = True,
    tensorboard: bool = False,
    on_validation: ValidationCallback | None = None,
) -> Run:
    """Train a model on a graph, or on what `load_graph` takes, and return the run with its best weights.

    Without a recipe, settings are chosen by the size of the graph. `overrides` change some of them:
    `{"train.steps": 5000}` or `["train.steps=5000"]`. With `out`, the run is stored in that folder while
    it trains, and `resume=True` continues it; without, it stays in memory until `run.save(...)`. A run that is resumed
    has its own graph, recipe and rules, which may be left out; `overrides` may change how long it trains and when it
    validates (`runs/changes.py`). With `init_from`, rows of entities and relations start as those of the same names in
    another run, whose recipe is then the default. `rules` are obeyed as the recipe says (`rules.mode`). `on_validation`
    receives the step and the MRR of each validation; an exception that it raises ends training.

    `init_vectors` is a Parquet file with the columns `name` and `vector`, or a dict from names to vectors. The rows of
    these entities start there, as they are, and with `freeze=True` never move.

    Where torchrun, srun or `pairre train --nproc` started several processes, all call this with the same arguments.
    They divide the rows of entities, and the model of the run that they return has a block of these in each.

    A `teacher` is a run on the same graph, such as an ensemble, whose scores of all entities are learnt, too, as the
    section `distill` of the recipe says. It is needed again to resume.
    """
    ranks = join_ranks()
    resume = resume or starts_again(ranks, out)
    graph, chosen = _load(graph, [out] if out and resume else []), pick_device(device, ranks.local_rank)
    check_over_ranks(ranks, out, init_from=init_from, init_vectors=init_vectors)
    overrides = _with_teacher(overrides, teacher)
    session = Session(
        graph,
        recipe,
        overrides,
        _read(rules),
        init_from=_open(init_from),
        vectors=_read_vectors(init_vectors, freeze, graph, resume),
        teacher=Teacher.of(teacher, graph, chosen) if teacher else None,
        path=None if out is None else Path(out),
        resume=resume,
        device=chosen,
        progress=progress and ranks.is_first,
        tensorboard=tensorboard and ranks.is_first,
        ranks=ranks,
    )
    session.on_validation, session.warns = on_validation, progress and ranks.is_first
    return _run_together([session], chosen)[0]


def train_seeds(
    graph: Any = None,
    recipe: Recipe | str | Path | None = None,
    *,
    seeds: Iterable[int],
    overrides: Overrides = (),
    rules: str | Path | Iterable[Rule] | None = None,
    init_from: Run | str | Path | None = None,
    init_vectors: VectorSource | None = None,
    freeze: bool = False,
    teacher: Run | str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    progress: bool = True,
) -> list[Run]:
    """Train once for each seed and return the runs; with `out`, each has its folder `seed-N` there.

    The graph may be anything that `load_graph` takes. On a GPU all train at once, so that a small graph fills it; on a
    CPU one after the other. Each ends as it would have ended alone. `resume=True` continues those that were begun, and
    then needs no graph.
    """
    overrides, numbers, given_rules = _with_teacher(overrides, teacher), list(dict.fromkeys(seeds)), _read(rules)
    if not numbers:
        raise RecipeError("seeds: name at least one")
    if join_ranks().size > 1:
        raise RecipeError("seeds: several processes train one run; leave out --seeds, or train in one process")
    if any(setting.partition("=")[0].strip() == "train.seed" for setting in overrides):
        raise RecipeError("train.seed: several seeds are trained, one after the other; leave out train.seed or --seeds")
    paths = {seed: None if out is None else Path(out) / f"seed-{seed}" for seed in numbers}
    begun = {seed: bool(resume and path and path.exists()) for seed, path in paths.items()}
    graph, chosen = _load(graph, [path for seed, path in paths.items() if path and begun[seed]]), pick_device(device)
    source = _open(init_from)
    for seed, path in paths.items():
        if path and not begun[seed]:
            _check_free(path)
    if given_rules is not None:  # here, so that a warning about rules that are left out appears once
        given_rules = usable_rules(
            given_rules,
            graph,
            resolve(graph, recipe or (source.recipe if source else None), overrides, with_rules=True),
        )
    together = chosen.type == "cuda"
    vectors = _read_vectors(init_vectors, freeze, graph, resume)
    taught_by = Teacher.of(teacher, graph, chosen) if teacher else None

    def make_session(seed: int) -> Session:
        session = Session(
            graph,
            recipe,
            [*overrides, f"train.seed={seed}"],
            given_rules,
            init_from=source,
            vectors=vectors,
            teacher=taught_by,
            path=paths[seed],
            resume=begun[seed],
            device=chosen,
            progress=progress and (not together or seed == numbers[0]),
        )
        session.warns = progress and seed == numbers[0]
        return session

    if together:
        return _run_together([make_session(seed) for seed in numbers], chosen)
    return [_run_together([make_session(seed)], chosen)[0] for seed in numbers]


def _load(graph: Any, stored: Sequence[str | Path]) -> Graph:
    """Return a graph, or without one that of the first of the run folders that are resumed."""
    if graph is None:
        if not stored:
            raise GraphError("no graph given: only a run that is resumed has one")
        graph = RunFolder.open(Path(stored[0])).graph()
    loaded: Graph = graph if isinstance(graph, Graph) else load_graph(graph)
    if len(loaded.train) == 0:
        raise GraphError(f"{loaded.name}: train is empty")
    return loaded


def _open(run: Run | str | Path | None) -> Run | None:
    return load_run(run, "cpu") if isinstance(run, str | Path) else run


def _with_teacher(overrides: Overrides, teacher: Run | str | Path | None) -> list[str]:
    """Return overrides as texts, with one that names the teacher."""
    path = teacher.path if isinstance(teacher, Run) else teacher
    if teacher is None:
        return settings_list(overrides)
    name = "a run in memory" if path is None else str(Path(path).absolute())
    return [*settings_list(overrides), f"distill.teacher={json.dumps(name, ensure_ascii=False)}"]


def _warn_of_leakage(graph: Graph) -> None:
    """Log how many triples of the split that is ranked at the end follow from train, if that is noteworthy."""
    final = next((split for split in _FINAL if len(graph.split(split))), None)
    if final and (line := describe_leakage(graph.leakage[final], final)):
        log.warning("%s: %s", graph.name, line)


def _read(rules: str | Path | Iterable[Rule] | None) -> list[Rule] | None:
    return read_rules(rules) if isinstance(rules, str | Path) else None if rules is None else list(rules)


def _read_vectors(source: VectorSource | None, freeze: bool, graph: Graph, resume: bool) -> InitVectors | None:
    if source is not None:
        return read_init_vectors(source, graph, freeze)
    if freeze and not resume:
        raise RecipeError("freeze: there are no initial vectors to keep; give some (--init-vectors FILE)")
    return None


class Session:
    """One run from its settings to its metrics: the trainer, the folder with its lock, the display, the loop."""

    on_validation: ValidationCallback | None = None
    warns: bool = False  # of test triples that follow from train

    def __init__(
        self,
        graph: Graph,
        recipe: Recipe | str | Path | None,
        overrides: Overrides,
        rules: list[Rule] | None,
        *,
        init_from: Run | None = None,
        vectors: InitVectors | None = None,
        teacher: Teacher | None = None,
        path: Path | None,
        resume: bool,
        device: torch.device,
        progress: bool,
        tensorboard: bool = False,
        ranks: Ranks = ALONE,
    ) -> None:
        self.graph, self.path, self.resume, self.ranks = graph, path, resume, ranks
        self.folder = _existing_folder(path) if resume else None
        if init_from and vectors:
            raise RecipeError("initial vectors and another run (init_from) both say where entities start: choose one")
        self.origin = start_of(init_from) if init_from else {}
        if rules is None and self.folder:
            rules = self.folder.rules() or None
        chosen = recipe or (self.folder.recipe() if self.folder else init_from.recipe if init_from else None)
        self.recipe = resolve(graph, chosen, overrides, with_rules=bool(rules))
        if init_from:
            self.recipe = fit_to_start(self.recipe, init_from)
        self.rules = [] if rules is None else usable_rules(rules, graph, self.recipe)
        if init_from and self.rules and self.recipe.rules.mode == "tie":
            raise RecipeError("rules.mode: relations that rules tie cannot start from another run; use soft")
        self.changed: set[str] = set()  # keys of the recipe that are not as they were when the run was made
        self.vectors = vectors
        if teacher is None and self.recipe.distill.teacher:
            teacher = Teacher.of(self.recipe.distill.teacher, graph, device)
        self.taught_by = {"teacher": teacher.described} if teacher else {}
        if self.folder:
            self._compare_with(self.folder, overrides)
        elif path is not None:
            with ranks.together():
                if ranks.is_first:
                    _check_free(path)
        # The trainer and the display raise errors before a folder is made.
        self.trainer = Trainer(
            graph, self.recipe, device, self.rules, vectors=self.vectors, teacher=teacher, ranks=ranks
        )
        if init_from and not self.folder:
            copy_known_rows(self.trainer.model, graph, init_from)
        self.display = make_display(graph, self.recipe, device, path if tensorboard else None, progress)

    def _compare_with(self, folder: RunFolder, overrides: Overrides) -> None:
        """Refuse to resume a run that was made from something else, and note which keys of its recipe change."""
        named = {setting.partition("=")[0].strip() for setting in settings_list(overrides)}
        self.changed = changed_keys(folder, self.graph, self.recipe, self.rules, named)
        origin = folder.origin()
        if origin.get("teacher") != self.taught_by.get("teacher"):
            raise RunError(f"{self.path}: was begun with another teacher, or its teacher has other weights now")
        if self.origin and origin != {**self.origin, **self.taught_by}:
            raise RunError(f"{self.path}: did not start from {self.origin['run']}; leave out --init-from")
        stored = folder.init_vectors()
        if self.vectors and not self.vectors.equals(stored):
            raise RunError(f"{self.path}: made with other initial vectors; leave them out, or choose another --out")
        self.vectors = stored

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if not self.folder and self.path:
                self.trainer.check_finite()
            with self.ranks.together():
                if self.ranks.is_first:
                    self._take_folder(stack)
            if self.path and not self.folder:
                self.folder = RunFolder(self.path)
            self.loop = Loop(self.trainer, self.folder, self.display, self.on_validation)
            if self.resume:
                self.loop.resume(self.changed)
            elif self.ranks.size > 1:
                self.loop.state.store_checkpoint()
            if self.warns:
                _warn_of_leakage(self.graph)
            stack.enter_context(self.display)
            self._open = stack.pop_all()
        return self

    def _take_folder(self, stack: ExitStack) -> None:
        """Lock the run folder, or make it; only one process does."""
        if self.folder:
            stack.enter_context(self.folder.locked())
            if self.changed:
                replace_recipe(self.folder, self.recipe)
        elif self.path:
            origin = {**self.origin, **self.taught_by}
            alone = self.ranks.size == 1
            self.folder = RunFolder.create(
                self.path,
                self.graph,
                self.recipe,
                self.rules,
                origin={"origin": origin} if origin else None,
                vectors=self.vectors,
                fill=self.trainer.store_checkpoint if alone else lambda _: None,
            )
            stack.push(self._close_new_folder)

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def _close_new_folder(self, kind: type | None, *_: Any) -> None:
        """Unlock the folder that this session made; one that holds nothing worth keeping after an error is removed."""
        assert self.folder
        if kind is not None and self.folder.is_untrained():
            self.folder.remove()
        self.folder.unlock()

    def finish(self) -> Run:
        """Return the trained run; if it has a folder, rank its test split, store metrics and probabilities."""
        model = self.trainer.model.requires_grad_(False)
        origin = {**self.origin, **self.taught_by}
        run = Run(self.graph, self.recipe, model, self.loop.history, self.path, self.rules, origin=origin)
        final = [split for split in _FINAL if len(self.graph.split(split))]
        if self.folder and final:
            self.display.notify(f"ranking the {final[0]} split")
            metrics = evaluate(run, final[0])
            with self.ranks.together():
                if self.ranks.is_first:
                    self.folder.save_metrics(metrics)
        if self.folder and (calibration := calibration_of(run)):
            with self.ranks.together():
                if self.ranks.is_first:
                    self.folder.save_calibration(calibration)
        return run


def _check_free(path: Path) -> None:
    """Raise RunError unless a run folder can be made at a path; a run that can be continued is named as such."""
    resume = "continue it with --resume, or " if RunFolder(path).checkpoint else ""
    RunFolder.check_free(path, f"{resume}choose another --out")


def _existing_folder(path: Path | None) -> RunFolder:
    if path is None:
        raise RunError("resume: say which run folder, with out")
    folder = RunFolder.open(path)
    if folder.format < PLAIN_FORMAT:
        raise RunError(
            f"{path}: of format {folder.format}, which is read but no longer written; "
            f"pairre migrate {shell_word(path)} --out NEW makes a copy that can be resumed"
        )
    folder.verify()
    return folder


def _run_together(sessions: list[Session], device: torch.device) -> list[Run]:
    """Run sessions to their end and return their runs; several take turns, so that their work overlaps on a GPU."""
    streams: list[AbstractContextManager[Any]] = [nullcontext() for _ in sessions]
    if len(sessions) > 1:
        torch.cuda.synchronize(device)  # what they share was made by the default stream
        streams = [torch.cuda.stream(torch.cuda.Stream(device)) for _ in sessions]  # type: ignore[no-untyped-call]
    runs: dict[int, Run] = {}
    stopped: list[TrainingInterruptedError] = []
    with ExitStack() as stack:
        signals = stack.enter_context(collect_stop_signals(any(s.path for s in sessions)))
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
