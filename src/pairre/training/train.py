"""Train a model on a graph: one run, or one for each of several seeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch

from pairre.graph import Graph, load_graph
from pairre.rules import Rule, read_rules
from pairre.runs import InitVectors, Run, RunFolder, VectorSource, load_run, read_init_vectors
from pairre.settings import Overrides, Recipe, resolve, settings_list
from pairre.support.device import pick_device
from pairre.support.errors import GraphError, RecipeError
from pairre.support.processes import join_processes
from pairre.training.distillation import Teacher
from pairre.training.loop import TrainingInterruptedError, ValidationCallback, collect_stop_signals
from pairre.training.over_processes import check_over_processes, starts_again
from pairre.training.rule_constraints import usable_rules
from pairre.training.session import Session, check_free

_ENDED: Any = object()  # what a loop yields after its last step


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

    A `teacher` is a run on the same graph, such as an ensemble, whose scores of negatives are learnt, too, as the
    section `distill` of the recipe says. It is needed again to resume.
    """
    processes = join_processes()
    resume = resume or starts_again(processes, out)
    graph, chosen = _load(graph, [out] if out and resume else []), pick_device(device, processes.local_rank)
    check_over_processes(processes, out, init_from=init_from, init_vectors=init_vectors)
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
        progress=progress and processes.is_first,
        tensorboard=tensorboard and processes.is_first,
        processes=processes,
    )
    session.on_validation, session.warns = on_validation, progress and not on_validation and processes.is_first
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
    if join_processes().size > 1:
        raise RecipeError("seeds: several processes train one run; leave out --seeds, or train in one process")
    if any(setting.partition("=")[0].strip() == "train.seed" for setting in overrides):
        raise RecipeError("train.seed: several seeds are trained, one after the other; leave out train.seed or --seeds")
    paths = {seed: None if out is None else Path(out) / f"seed-{seed}" for seed in numbers}
    begun = {seed: bool(resume and path and path.exists()) for seed, path in paths.items()}
    graph, chosen = _load(graph, [path for seed, path in paths.items() if path and begun[seed]]), pick_device(device)
    source = _open(init_from)
    for seed, path in paths.items():
        if path and not begun[seed]:
            check_free(path)
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


def _read(rules: str | Path | Iterable[Rule] | None) -> list[Rule] | None:
    return read_rules(rules) if isinstance(rules, str | Path) else None if rules is None else list(rules)


def _read_vectors(source: VectorSource | None, freeze: bool, graph: Graph, resume: bool) -> InitVectors | None:
    if source is not None:
        return read_init_vectors(source, graph, freeze)
    if freeze and not resume:
        raise RecipeError("freeze: there are no initial vectors to keep; give some (--init-vectors FILE)")
    return None


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
