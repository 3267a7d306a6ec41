"""An experiment → its table: trains what is missing, goes on with what was cut off, and compares with the paper."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pairre.analysis.patterns import agreement, paired_vectors
from pairre.analysis.report.figures import check_matplotlib, write_pattern
from pairre.evaluation import evaluate
from pairre.graph import Graph, load_graph
from pairre.rules import Rule, read_rules
from pairre.runs import RunFolder, load_run, merge, versions
from pairre.studies.reproduce.experiments import EXPERIMENTS, PATTERNS, Experiment, Figure, Trial, pattern_figures
from pairre.support.device import pick_device
from pairre.support.errors import PairREError, RunError, suggest
from pairre.support.files import read_checked_json, write_checked_json
from pairre.training import TrainingInterruptedError, train_seeds

Notify = Callable[[str], None]
_DONE = "reproduce.json"  # marks a run folder as finished
_SPORTS = (  # the paper's two rules
    Rule(("concept:coachesteam",), "concept:personbelongstoorganization", "subrelation", 1.0),
    Rule(("concept:athleteledsportsteam",), "concept:athleteplaysforteam", "subrelation", 1.0),
)


@dataclass(frozen=True)
class Row:
    """What one trial reached, beside what was published for it."""

    label: str
    ours: dict[str, list[float]]  # by metric, one value a seed
    published: dict[str, Figure]
    seconds: float | None = None  # of all seeds together, ranking included, divided by their number
    device: str = ""

    def mean(self, metric: str) -> Figure:
        """Return mean and standard deviation over seeds."""
        values = self.ours[metric]
        return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "label": self.label,
            "seconds": self.seconds,
            "device": self.device,
            "metrics": {
                name: {
                    "mean": self.mean(name)[0],
                    "std": self.mean(name)[1],
                    "values": values,
                    "published": self.published.get(name, (None, None)),
                }
                for name, values in self.ours.items()
            },
        }


@dataclass(frozen=True)
class Reproduced:
    """The table of one experiment."""

    experiment: Experiment
    rows: list[Row]
    files: list[Path] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.experiment.name,
            "title": self.experiment.title,
            "remark": self.experiment.remark,
            "rows": [row.as_dict() for row in self.rows],
        }


def machine(device: str = "auto") -> dict[str, Any]:
    """Return what tables were made on, by which versions, and when: for files of results."""
    chosen = pick_device(device)
    gpu = {"gpu": _device_name(device)} if chosen.type == "cuda" else {}
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": platform.machine(),
        "cores": os.cpu_count(),
        **gpu,
        "versions": versions(),
    }


def find(name: str) -> Experiment:
    """Return an experiment by name."""
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    if name not in known:
        raise PairREError(f"{name}: no such experiment{suggest(name, known)}; names: {', '.join(known)}")
    return known[name]


def reproduce(
    name: str,
    folder: str | Path,
    *,
    seeds: int | None = None,
    settings: tuple[str, ...] = (),
    device: str = "auto",
    progress: bool = True,
    notify: Notify = lambda _: None,
) -> Reproduced:
    """Return the table of an experiment; its runs are kept in `folder` and used again.

    `settings` change every recipe (`train.steps=1000` for a quick look) and are part of a run's folder.
    """
    experiment, place = find(name), Path(folder)
    runs = _Runs(place, settings, device, progress, notify)
    number = seeds or experiment.seeds
    if experiment.view == "statistics":
        return Reproduced(experiment, list(_statistics(experiment, notify)))
    if experiment.view == "patterns":
        return _patterns(experiment, runs, place / "figures")
    return Reproduced(experiment, [_row(experiment, t, runs.of(t, number), device) for t in experiment.trials])


def _row(experiment: Experiment, trial: Trial, finished: list[Path], device: str) -> Row:
    values: dict[str, list[float]] = {}
    notes = [_note(path) for path in finished]
    for path in finished:
        found = _categories(path, device) if experiment.view == "categories" else _metrics(path)
        for metric in experiment.metrics:
            if metric in found:
                values.setdefault(metric, []).append(found[metric])
    seconds = statistics.mean(note["seconds"] for note in notes)
    trained_on = ", ".join(sorted({note["device"] for note in notes}))
    return Row(trial.label, values, dict(trial.published or {}), seconds, trained_on)


def _metrics(path: Path) -> dict[str, float]:
    metrics = RunFolder.open(path).metrics()
    if metrics is None:
        raise RunError(f"{path / 'metrics.json'}: missing; delete {path / _DONE} to rank the run again")
    both: dict[str, float] = metrics["both"]
    return both


def _categories(path: Path, device: str) -> dict[str, float]:
    """Return Hits@10 of each relation category, ranked once and kept beside the run."""
    file = path / "categories.json"
    if not file.exists():
        run = load_run(path, device)
        write_checked_json(file, evaluate(run, "test", "category")["by_category"])
    groups = read_checked_json(file, required=False)
    return {name: group["both"]["hits_at_10"] for name, group in groups.items()}


@dataclass(frozen=True)
class _Runs:
    """Trained runs by trial and seed."""

    folder: Path
    settings: tuple[str, ...]
    device: str
    progress: bool
    notify: Notify

    def of(self, trial: Trial, seeds: int) -> list[Path]:
        """Return a run folder for each of the first seeds, trained to its end, or merged of so many."""
        if trial.members == 1:
            return self._trained(trial, range(seeds))
        return [self._merged(trial, range(n * trial.members, (n + 1) * trial.members)) for n in range(seeds)]

    def _folder(self, trial: Trial) -> Path:
        key = "-".join([trial.key, *(s.replace("=", "_") for s in self.settings)])
        return self.folder / key.replace("/", "_")

    def _trained(self, trial: Trial, seeds: range) -> list[Path]:
        place = self._folder(trial)
        paths = {seed: place / f"seed-{seed}" for seed in seeds}
        missing = [seed for seed, path in paths.items() if not (path / _DONE).exists()]
        if missing:
            graph = load_graph(trial.graph)
            rules = _rules(trial, graph) if trial.rules else None
            mode = [f"rules.mode={trial.rules}"] if trial.rules else []
            self.notify(f"training {trial.label} on {trial.graph}, seeds {', '.join(map(str, missing))}")
            earlier = [_seconds_spent(paths[seed]) for seed in missing]
            started = time.perf_counter()
            try:
                train_seeds(
                    *(graph, trial.recipe),
                    seeds=missing,
                    overrides=[*trial.settings, *self.settings, *mode],
                    rules=rules,
                    out=place,
                    resume=True,
                    device=self.device,
                    progress=self.progress,
                )
            except TrainingInterruptedError as stop:
                raise stop.with_advice("the same command continues") from None
            at_once = pick_device(self.device).type == "cuda"
            spent = time.perf_counter() - started + (max(earlier) if at_once else sum(earlier))
            note = {"seconds": spent / len(missing), "device": _device_name(self.device)}
            for seed in missing:
                write_checked_json(paths[seed] / _DONE, note)
        return list(paths.values())

    def _merged(self, trial: Trial, seeds: range) -> Path:
        """Return several runs as one, and how long all of them took."""
        path = self._folder(trial) / f"merged-{seeds[0]}-{seeds[-1]}"
        if not (path / _DONE).exists():
            members = self._trained(trial, seeds)
            run = merge([load_run(member, self.device) for member in members])
            shutil.rmtree(path, ignore_errors=True)  # one that was cut off
            run.save(path)
            RunFolder.open(path).save_metrics(evaluate(run))
            seconds = sum(_note(member)["seconds"] for member in members)
            write_checked_json(path / _DONE, {"seconds": seconds, "device": _note(members[0])["device"]})
        return path


def _note(path: Path) -> dict[str, Any]:
    """Return what was noted when a run was finished."""
    note = read_checked_json(path / _DONE, required=False)
    if not {"seconds", "device"} <= note.keys():
        raise RunError(f"{path / _DONE}: damaged: seconds or device is missing; delete it to rank the run again")
    return note


def _seconds_spent(path: Path) -> float:
    """Return the seconds that an interrupted training of a run had taken up to its last checkpoint."""
    file = path / "checkpoint.safetensors"
    return RunFolder.open(path).load_checkpoint()[1].seconds if file.exists() else 0.0


def _device_name(device: str) -> str:
    chosen = pick_device(device)
    return torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else f"{os.cpu_count()} CPU cores"


def _rules(trial: Trial, graph: Graph) -> list[Rule]:
    """Return the rules of a graph: a `rules.tsv` beside its splits, or for Sports those that the paper prints."""
    data = os.environ.get("PAIRRE_DATA")
    if data and (file := Path(data) / trial.graph / "rules.tsv").is_file():
        return read_rules(file)
    if trial.graph == "sports":
        return list(_SPORTS)
    raise PairREError(
        f"{graph.name}: its rules are needed as $PAIRRE_DATA/{trial.graph}/rules.tsv, "
        "in the format that `pairre rules mine` writes"
    )


def _statistics(experiment: Experiment, notify: Notify) -> Iterator[Row]:
    for trial in experiment.trials:
        try:
            graph = load_graph(trial.graph)
        except PairREError as error:
            notify(f"{trial.graph} is left out: {error}")
            continue
        sizes = {"relations": graph.num_relations, "entities": graph.num_entities}
        sizes |= {"train": len(graph.train), "valid": len(graph.valid), "test": len(graph.test)}
        ours = {name: [float(size)] for name, size in sizes.items()}
        yield Row(trial.label, ours, dict(trial.published or {}))


def _patterns(experiment: Experiment, runs: _Runs, folder: Path) -> Reproduced:
    """Return how nearly each pattern of the paper's figure holds in the vectors of a run, and the histograms."""
    check_matplotlib()
    trial = experiment.trials[0]
    run = load_run(runs.of(trial, 1)[0], runs.device)
    vectors = paired_vectors(run.model)
    assert vectors is not None  # the trial is PairRE's
    rows, files = [], []
    for figure, (kind, names, holds) in zip(pattern_figures(), PATTERNS, strict=True):
        ids = np.array([[run.graph.relations.id(name) for name in names]])
        reached = float(agreement(vectors, kind, ids)[0])
        label = f"{kind} of {', '.join(names)} ({'holds' if holds else 'does not hold'} in the paper)"
        rows.append(Row(label, {"agreement": [reached]}, {}))
        files += write_pattern(figure, kind, tuple(ids[0].tolist()), names, vectors, folder)
    return Reproduced(experiment, rows, files)
