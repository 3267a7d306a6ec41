"""The run folder: everything that resuming, evaluating and querying a run needs; files are written whole or not at all.

recipe.toml             the resolved recipe, which can itself be run
run.json                graph name and fingerprint, versions, when
graph/                  vocabularies and splits as Parquet
rules.tsv               the rules that training obeys, if any
checkpoint.safetensors  last weights, optimiser state and progress, for --resume
model.safetensors       the best weights so far, for evaluate and predict
log.jsonl               one line a report and a validation
metrics.json            the last evaluation of `train`
lock                    held by the process that trains
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numba
import numpy
import pyarrow
import safetensors
import torch
from torch import Tensor

from pairre.graph import Graph
from pairre.models import Model
from pairre.rules import Rule, read_rules, write_rules
from pairre.settings import Recipe, load_stored_recipe
from pairre.support.errors import GraphError, RunError
from pairre.support.files import disk_error, write_json, write_tensors, write_text

VERSION = 1


@dataclass
class Progress:
    """What the training loop must remember between a stop and a resume, beside the tensors."""

    step: int = 0
    best_mrr: float = -1.0
    validations_without_gain: int = 0
    seconds: float = 0.0


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def check_free(path: Path) -> None:
        """Raise RunError if something is at a path already."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunError(f"{path}: exists; continue it with --resume, or choose another --out")

    @classmethod
    def create(cls, path: Path, graph: Graph, recipe: Recipe, rules: Sequence[Rule] = ()) -> RunFolder:
        """Make the folder under another name and move it into place, so that it exists whole or not at all."""
        cls.check_free(path)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            part.mkdir(parents=True)
            write_text(part / "recipe.toml", recipe.to_toml())
            write_json(part / "run.json", _description(graph, recipe))
            graph.save(part / "graph")
            if rules:
                write_rules(part / "rules.tsv", rules)
            (part / "log.jsonl").touch()
            (part / "lock").touch()
            part.replace(path)
        except OSError as error:
            raise disk_error(path, error) from error
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Return an existing folder; raise RunError if it is not a run folder that this version reads."""
        if not path.is_dir():
            raise RunError(f"{path}: no such run folder; pairre train GRAPH --out {path} makes one")
        folder = cls(path)
        for name in ("run.json", "recipe.toml", "graph"):
            if not (path / name).exists():
                raise RunError(f"{path}: not a run folder ({name} is missing)")
        version = folder.description().get("version")
        if version != VERSION:
            raise RunError(f"{path}: written by another version of pairre (format {version}, this one reads {VERSION})")
        return folder

    def description(self) -> dict[str, Any]:
        """Return what run.json says."""
        file = self.path / "run.json"
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise RunError(f"{file}: damaged: {error}") from error
        if not isinstance(value, dict):
            raise RunError(f"{file}: damaged: not a JSON object")
        return value

    def recipe(self) -> Recipe:
        """Return the resolved recipe."""
        return load_stored_recipe(self.path / "recipe.toml")

    def graph(self) -> Graph:
        """Return the graph that the run was trained on."""
        try:
            return Graph.load(self.path / "graph", str(self.description().get("graph")))
        except (pyarrow.ArrowException, safetensors.SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
            raise GraphError(f"{self.path / 'graph'}: damaged: {str(error).splitlines()[0]}") from error

    def rules(self) -> list[Rule]:
        """Return the rules that the run obeys."""
        file = self.path / "rules.tsv"
        return read_rules(file) if file.exists() else []

    def check_same(self, graph: Graph, recipe: Recipe, rules: Sequence[Rule]) -> None:
        """Raise RunError if the recipe, the graph or the rules are not those of the folder."""
        differences = recipe.differences(self.recipe())
        if differences:
            raise RunError(f"{self.path}: made with another recipe ({'; '.join(differences)}); choose another --out")
        if self.description().get("fingerprint") != graph.fingerprint:
            raise RunError(f"{self.path}: made from another graph than '{graph.name}' is now; choose another --out")
        if list(rules) != (mine := self.rules()):
            made = f"with {len(mine)} other rules ({self.path / 'rules.tsv'})" if mine else "without rules"
            raise RunError(f"{self.path}: made {made}; leave out --rules, or choose another --out")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this process; the lock ends with the process, however that ends."""
        with (self.path / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise RunError(f"{self.path}: in use by process {file.read().strip() or '?'}") from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    # --- weights ---

    def save_model(self, model: Model) -> None:
        """Store the weights of a model as the best ones."""
        write_tensors(self.path / "model.safetensors", model.state_dict())

    def load_model(self, model: Model) -> None:
        """Copy the best weights into a model."""
        tensors, _ = self._load_tensors("model.safetensors")
        self.copy_into(tensors, dict(model.state_dict()), "model.safetensors")

    def save_checkpoint(self, tensors: dict[str, Tensor], progress: Progress) -> None:
        """Store everything that the next step depends on, in one file."""
        write_tensors(self.path / "checkpoint.safetensors", tensors, {"progress": json.dumps(asdict(progress))})

    def load_checkpoint(self) -> tuple[dict[str, Tensor], Progress]:
        """Return what `save_checkpoint` stored."""
        tensors, metadata = self._load_tensors("checkpoint.safetensors")
        try:
            return tensors, Progress(**json.loads(metadata["progress"]))
        except (KeyError, json.JSONDecodeError, TypeError) as error:
            raise RunError(f"{self.path / 'checkpoint.safetensors'}: corrupted: no progress in it") from error

    def copy_into(self, tensors: dict[str, Tensor], into: dict[str, Tensor], name: str) -> None:
        """Copy tensors into those of the same names; raise RunError if one is missing or has another shape."""
        for key, target in into.items():
            if key not in tensors or tensors[key].shape != target.shape:
                raise RunError(f"{self.path / name}: corrupted: '{key}' is missing or has another shape")
            with torch.no_grad():
                target.copy_(tensors[key])

    def _load_tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
        file = self.path / name
        if not file.exists():
            raise RunError(f"{file}: missing; the run has not got that far: continue it with pairre train … --resume")
        try:
            with safetensors.safe_open(file, framework="pt") as opened:
                return {key: opened.get_tensor(key) for key in opened.keys()}, opened.metadata() or {}  # noqa: SIM118
        except safetensors.SafetensorError as error:
            raise RunError(f"{file}: corrupted: {error}") from error

    # --- log and metrics ---

    def append_log(self, entry: dict[str, Any]) -> None:
        """Append an entry to log.jsonl."""
        file = self.path / "log.jsonl"
        try:
            with file.open("a", encoding="utf-8") as log:
                log.write(json.dumps(entry, allow_nan=False) + "\n")
        except OSError as error:
            raise disk_error(file, error) from error

    def read_log(self) -> list[dict[str, Any]]:
        """Return the entries of log.jsonl, without a last line that a crash cut off."""
        file = self.path / "log.jsonl"
        entries = []
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
            with contextlib.suppress(json.JSONDecodeError):
                entries.append(json.loads(line))
        return entries

    def cut_log(self, step: int) -> None:
        """Remove entries after a step that is about to be repeated."""
        kept = [entry for entry in self.read_log() if entry["step"] <= step]
        write_text(self.path / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in kept))

    def save_metrics(self, metrics: dict[str, Any]) -> None:
        """Write metrics.json."""
        write_json(self.path / "metrics.json", metrics)


def _description(graph: Graph, recipe: Recipe) -> dict[str, Any]:
    return {
        "version": VERSION,
        "graph": graph.name,
        "fingerprint": graph.fingerprint,
        "num_entities": graph.num_entities,
        "num_relations": graph.num_relations,
        "seed": recipe.train.seed,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions that computed a result, for run folders and benchmark files."""
    from pairre import __version__

    return {
        "pairre": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "numba": numba.__version__,
        "pyarrow": pyarrow.__version__,
    }
