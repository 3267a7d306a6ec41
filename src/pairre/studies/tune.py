"""Search for good settings with Optuna: trials are judged and pruned by validation MRR.

A study is a folder:

study.db   every trial, in SQLite, so that the same call continues however the last one ended
best.toml  the best recipe so far, which can be run
lock       held by the process that tunes

Trials train on a graph without its test triples, which are not even used to filter candidates.
"""

from __future__ import annotations

import gc
import json
import shutil
import signal
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from pairre.graph import Graph, load_graph
from pairre.runs import RunFolder
from pairre.settings import Overrides, Recipe, from_values, resolve, settings_list
from pairre.settings.parse import OLD_NAMES
from pairre.support.device import pick_device
from pairre.support.errors import GraphError, MissingExtraError, PairREError, RecipeError, RunError, TrainingError
from pairre.support.files import disk_errors, write_text
from pairre.support.interrupts import check_interrupt, interrupts_noted
from pairre.support.memory import is_out_of_memory
from pairre.support.randomness import key
from pairre.support.reading import parse_toml, read_text, shortened
from pairre.support.text import visible
from pairre.training import TrainingInterruptedError, train

Value = bool | int | float | str


@dataclass(frozen=True)
class Choices:
    """A setting that takes one of a few values."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Range:
    """A number in an interval, drawn uniformly, or with `log` uniformly in its logarithm."""

    low: float
    high: float
    log: bool = False


Space = dict[str, Choices | Range]  # by `section.key`
DEFAULT_SPACE: Space = {  # for PairRE on a graph that nobody has tuned
    "train.lr": Range(1e-4, 2e-2, log=True),
    "loss.margin": Choices((3.0, 6.0, 9.0, 12.0, 15.0)),
    "loss.temperature": Choices((0.5, 1.0, 2.0)),
    "loss.query_balance": Range(0.0, 1.0),
    "model.dim": Choices((100, 200, 400)),
}


@dataclass(frozen=True)
class Attempt:
    """A trial that has ended, and the best validation MRR so far."""

    number: int
    state: Literal["complete", "pruned", "failed"]
    settings: dict[str, Value]
    mrr: float | None
    best: float | None
    error: str = ""


@dataclass(frozen=True)
class Tuned:
    """The result of a search: the recipe of the best trial, and the importance of each setting (they add up to 1)."""

    recipe: Recipe
    mrr: float
    settings: dict[str, Value]
    num_trials: int
    importances: dict[str, float]


class TuningInterruptedError(TrainingInterruptedError):
    """Raised on Ctrl-C; the trials that had ended are kept."""

    def __init__(self, path: Path) -> None:
        PairREError.__init__(self, f"stopped; the trials that had ended are in {path}: the same command continues")
        self.exit_code = 128 + signal.SIGINT


def load_space(path: str | Path) -> Space:
    """Return the space of a TOML file like a recipe, where each value is a list of choices or `{low, high, log}`."""
    try:
        values = parse_toml(read_text(Path(path), RecipeError))
    except ValueError as error:
        raise RecipeError(f"{path}: not valid TOML: {error}") from error
    try:
        return read_space(values)
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from None


def read_space(values: Mapping[str, Any]) -> Space:
    """Return a space from nested values.

    Keys and both ends of a range are checked as those of a recipe are, and old key names are accepted.
    """
    space: Space = {}
    for section, entries in values.items():
        if not isinstance(entries, Mapping):
            from_values({section: entries})  # which says what is wrong with it
        for name, declared in entries.items():
            path = f"{section}.{name}"
            space[OLD_NAMES.get(path, path)] = _declared(section, name, declared)
    if not space:
        raise RecipeError("no key to tune in it")
    return space


def _declared(section: str, name: str, declared: Any) -> Choices | Range:
    """Return the choices or the range that a space declares for one key."""
    path = f"{section}.{name}"
    attribute = OLD_NAMES.get(path, path).partition(".")[2]

    def checked(value: Any) -> Any:
        return getattr(getattr(from_values({section: {name: value}}), section), attribute)

    if isinstance(declared, list) and declared:
        return Choices(tuple(checked(value) for value in declared))
    if not isinstance(declared, Mapping) or not {"low", "high"} <= declared.keys() <= {"low", "high", "log"}:
        raise RecipeError(f"{path}: write a list of choices, or {{low = …, high = …, log = true}}")
    low, high, log = checked(declared["low"]), checked(declared["high"]), declared.get("log", False)
    if isinstance(low, bool | str):
        raise RecipeError(f"{path}: has no range: write a list of choices")
    if not isinstance(log, bool):
        raise RecipeError(f"{path}: log: true or false expected, not {shortened(repr(log))}")
    if low >= high or (log and low <= 0):
        raise RecipeError(f"{path}: low must be below high{', and above 0 for log' if log else ''}")
    return Range(low, high, log)


def tune(
    graph: Graph | str | Path,
    recipe: Recipe | str | Path | None = None,
    *,
    out: str | Path,
    space: Space | str | Path | None = None,
    overrides: Overrides = (),
    trials: int = 20,
    timeout: float | None = None,
    seed: int = 0,
    device: str = "auto",
    report: Callable[[Attempt], None] = lambda _: None,
) -> Tuned:
    """Try settings from `space` until there are `trials` in all, and return the best.

    The study and the best recipe are kept in the folder `out`. Keys outside the space have the recipe's values, and a
    key that `overrides` sets is not tuned. No trial starts after `timeout` seconds. A trial that diverges or runs out
    of memory counts as failed. `report` is called with each trial that ends.
    """
    graph = graph if isinstance(graph, Graph) else load_graph(graph)
    if len(graph.valid) == 0:
        raise GraphError(f"{graph.name}: the valid split is empty, and settings are judged by it")
    graph = graph.without_test()
    overrides, path = settings_list(overrides), Path(out)
    base = resolve(graph, recipe, overrides)
    ranges = DEFAULT_SPACE if space is None else space if isinstance(space, dict) else load_space(space)
    set_keys = {setting.partition("=")[0].strip() for setting in overrides}
    fixed = {OLD_NAMES.get(path, path) for path in set_keys}
    if space is None and not base.loss.query_balance:  # the recipe weighs positives in another way, or must not at all
        fixed.add("loss.query_balance")
    ranges = {name: values for name, values in ranges.items() if name not in fixed}
    if not ranges:
        raise RecipeError("every key of the space is set: nothing is left to tune")
    pick_device(device)  # an unknown one is refused before the folder is made
    if trials < 1 or (timeout is not None and not timeout >= 0):
        raise RecipeError(f"trials {trials}, timeout {timeout}: at least one trial, and seconds from 0 on expected")
    started, is_new = time.monotonic(), not path.exists()
    with interrupts_noted(), _study(path, graph, base, ranges, seed) as study:
        tuner = _Tuner(study, graph, base, ranges, seed, device)
        try:
            while tuner.num_trials < trials and (timeout is None or time.monotonic() - started < timeout):
                attempt = tuner.attempt()
                tuner.keep_best(path / "best.toml")
                report(attempt)
                check_interrupt()
        except KeyboardInterrupt:
            raise TuningInterruptedError(path) from None
        if tuner.num_trials:
            tuner.keep_best(path / "best.toml")
            return tuner.result()
    if is_new:
        shutil.rmtree(path)
    raise TrainingError(f"timeout {timeout:g}: over before a trial could begin; give it more seconds")


class _Tuner:
    """Runs the trials of a study."""

    def __init__(self, study: Any, graph: Graph, base: Recipe, ranges: Space, seed: int, device: str) -> None:
        self.study, self.graph, self.base, self.ranges = study, graph, base, ranges
        self.seed, self.device = seed, device

    @property
    def num_trials(self) -> int:
        """The number of trials that have ended; one whose process was killed does not count."""
        return sum(1 for t in self.study.get_trials(deepcopy=False) if _ended(t))

    def attempt(self) -> Attempt:
        """Run a trial; its settings depend on the seed and earlier trials only, so a continued study is the same."""
        from optuna import TrialPruned
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState

        self.study.sampler = TPESampler(seed=key(self.seed, "trial", self.num_trials) & 0xFFFFFFFF)
        trial, seen, error = self.study.ask(), list[float](), ""
        settings = {name: _suggest(trial, name, values) for name, values in self.ranges.items()}

        def watch(_: int, mrr: float) -> None:
            check_interrupt()
            seen.append(mrr)
            trial.report(mrr, len(seen))
            if trial.should_prune():
                raise TrialPruned

        try:
            recipe = _with(self.base, settings)
            train(self.graph, recipe, device=self.device, progress=False, on_validation=watch)
            self.study.tell(trial, max(seen))
        except TrialPruned:
            self.study.tell(trial, state=TrialState.PRUNED)
        except (TrainingError, RecipeError, MemoryError, RuntimeError) as failure:
            if not _expected(failure):
                raise
            error = str(failure).splitlines()[0] if str(failure) else type(failure).__name__
            trial.set_user_attr("error", error)
            self.study.tell(trial, state=TrialState.FAIL)
        gc.collect()  # reference cycles would keep the trial's memory until Python collects them
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        ended = self.study.get_trials(deepcopy=False)[trial.number]
        state: Any = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}[ended.state.name]
        best = self._best()
        mrr = None if error else max(seen)
        return Attempt(self.num_trials, state, settings, mrr, best.value if best else None, error)

    def _best(self) -> Any:
        """Return the best complete trial, the first of equals, or None if there is none."""
        complete = [t for t in self.study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"]
        return max(complete, key=lambda t: t.value, default=None)

    def keep_best(self, file: Path) -> None:
        """Write the best recipe so far."""
        if best := self._best():
            remark = f"# {visible(self.graph.name)}: valid MRR {best.value:.4f}, the best of {self.num_trials} trials\n"
            write_text(file, remark + _with(self.base, best.params).to_toml())

    def result(self) -> Tuned:
        """Return the best of all trials."""
        if (best := self._best()) is None:
            errors = [t.user_attrs["error"] for t in self.study.get_trials(deepcopy=False) if "error" in t.user_attrs]
            raise TrainingError("; the last one: ".join(["no trial has come to its end", *errors[-1:]]))
        recipe = _with(self.base, best.params)
        return Tuned(recipe, best.value, dict(best.params), self.num_trials, self._importances())

    def _importances(self) -> dict[str, float]:
        """Return how much each setting explains the differences between trials, or nothing for too few trials."""
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

        with warnings.catch_warnings(action="ignore"):  # it is called experimental by older versions
            try:
                return dict(get_param_importances(self.study, evaluator=PedAnovaImportanceEvaluator()))
            except (ValueError, RuntimeError):
                return {}


@contextmanager
def _study(path: Path, graph: Graph, base: Recipe, ranges: Space, seed: int) -> Iterator[Any]:
    """Yield the study of a folder, new or continued, and hold its lock; refuse one with other settings."""
    try:
        import optuna
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        raise MissingExtraError("pairre tune", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    file = path / "study.db"
    with disk_errors(path):
        if path.exists() and not file.exists() and (not path.is_dir() or {p.name for p in path.iterdir()} - {"lock"}):
            raise RunError(f"{path}: exists, and nothing was tuned there; choose another --out")
        path.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(RunFolder(path).locked())
        try:
            # A path within an address would need quoting that drivers differ about, so the address is a mere label.
            storage = optuna.storages.RDBStorage(
                "sqlite:///study.db", engine_kwargs={"creator": partial(sqlite3.connect, file.resolve())}
            )
            stack.callback(storage.engine.dispose)
            stack.callback(storage.remove_session)
            pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2)
            study = optuna.create_study(
                storage=storage, study_name="pairre", direction="maximize", load_if_exists=True, pruner=pruner
            )
            _check_same(study, path, graph, base, ranges, seed)
            for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):  # its process was killed
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            yield study
        except (SQLAlchemyError, sqlite3.Error, optuna.exceptions.StorageInternalError) as error:
            raise RunError(f"{file}: {_database_fault(error)}") from error


def _database_fault(error: Exception) -> str:
    """Return what went wrong with a database, in one line."""
    cause = getattr(error, "orig", None) or error.__cause__ or error
    cause = getattr(cause, "orig", None) or cause
    text = " ".join(str(cause).split())
    if "disk is full" in text:
        return "the disk is full; free some space and repeat the command (the trials that had ended are kept)"
    return f"damaged: {text}" if "malformed" in text or "not a database" in text else text


def _check_same(study: Any, path: Path, graph: Graph, base: Recipe, ranges: Space, seed: int) -> None:
    space = {name: asdict(values) for name, values in ranges.items()}
    made = {"graph": graph.fingerprint, "recipe": base.to_toml(), "space": json.dumps(space), "seed": seed}
    for name, value in made.items():
        if study.user_attrs.setdefault(name, value) != value:
            raise RunError(f"{path}: tuned with another {name} before; choose another --out")
        study.set_user_attr(name, value)


def _ended(trial: Any) -> bool:
    """Return whether a trial ended by itself; a failed one without an error was killed and is repeated."""
    return trial.state.is_finished() and (trial.state.name != "FAIL" or "error" in trial.user_attrs)


def _expected(failure: Exception) -> bool:
    """Return whether settings can cause the failure: a diverged loss, a refused recipe, no memory left."""
    return isinstance(failure, TrainingError | RecipeError) or is_out_of_memory(failure)


def _suggest(trial: Any, name: str, values: Choices | Range) -> Any:
    if isinstance(values, Choices):
        return trial.suggest_categorical(name, values.values)
    suggest = trial.suggest_int if isinstance(values.low, int) else trial.suggest_float
    return suggest(name, values.low, values.high, log=values.log)


def _with(base: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """Return a recipe with some keys changed."""
    for name, value in settings.items():
        section, _, setting = name.partition(".")
        base = from_values({section: {setting: value}}, base)
    return base
