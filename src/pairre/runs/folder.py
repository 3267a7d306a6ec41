"""The run folder: everything that resuming, evaluating and querying a run needs; files are written whole or not at all.

recipe.toml             the resolved recipe, which can itself be run
run.json                format, graph name and fingerprint, versions, when, checksums of the files that never change
graph/                  vocabularies and splits as Parquet
rules.tsv               the rules that training obeys, if any
members/                of an ensemble: the recipes of its members, and its rules
init-vectors.safetensors  vectors of entities that training starts from, if any were given
checkpoint.safetensors  last weights, optimiser state and progress, for --resume (`checkpoints.py`)
model.safetensors       the best weights so far, for evaluate and predict (of several processes: `shard_files.py`)
log.jsonl               one line for each report and each validation
metrics.json            the last evaluation of `train`
calibration.json        the curve from scores to probabilities, fitted on the validation split
plan.json               of a run that an effort made: what was tried, what it reached, and what was kept
lock                    held by the process that trains

Files that change carry their own checksum, so that a file and its checksum are always replaced together.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow
import safetensors
import torch
from torch import Tensor

from pairre.graph import Graph
from pairre.models import Model
from pairre.rules import Rule, read_rules, write_rules
from pairre.runs.calibration import Calibration, num_trained
from pairre.runs.checkpoints import checkpoint_path, read_checkpoint, read_progress, remove_folders
from pairre.runs.init_vectors import InitVectors
from pairre.runs.log import RunLog
from pairre.runs.mapped_rows import whole_weights
from pairre.runs.members import Members
from pairre.runs.progress import Progress
from pairre.runs.shard_files import ShardFiles, remove_shards, weight_files
from pairre.runs.versions import versions
from pairre.settings import Recipe, load_stored_recipe
from pairre.support.errors import GraphError, RunError
from pairre.support.files import (
    checksum_faults,
    disk_errors,
    file_checksum,
    make_part,
    part_name,
    read_checked_json,
    remove_orphan,
    remove_orphans,
    sync_folder,
    try_lock,
    write_checked_json,
    write_text,
)
from pairre.support.reading import check_path
from pairre.support.tensors import write_tensors
from pairre.support.text import shell_word

FORMAT = 3  # the newest: it reads every format up to this one
PLAIN_FORMAT = 2  # what runs of one model have; only ensembles have the newest, so that older versions read the others


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = RunLog(path / "log.jsonl")
        self._lock: IO[str] | None = None

    # --- making, opening, locking ---

    @classmethod
    def check_free(cls, path: Path, advice: str = "choose another --out") -> None:
        """Raise RunError, with some advice, unless a run folder can be made at a path.

        Nothing may be there but an empty folder, or a run that was cut off before it had learnt anything.
        """
        check_path(path)
        if path.name in ("", ".."):
            raise RunError(f"{path}: this folder cannot be replaced by a run; name a new one, such as {path / 'run'}")
        with disk_errors(path):
            if not path.exists() or (path.is_dir() and not any(path.iterdir())):
                return
            folder = cls(path)
            if not folder.is_untrained():
                raise RunError(f"{path}: exists; {advice}")
            with folder.locked():  # refused if another process is just beginning to train there
                pass

    @classmethod
    def create(
        cls,
        path: Path,
        graph: Graph,
        recipe: Recipe,
        rules: Sequence[Rule] = (),
        fill: Callable[[RunFolder], None] = lambda _: None,
        origin: Mapping[str, Any] | None = None,
        vectors: InitVectors | None = None,
        members: Members | None = None,
    ) -> RunFolder:
        """Make a folder under another name, `fill` it, and move it into place, so that it exists whole or not at all.

        The folder is locked by this process until `unlock`. `origin` are entries of run.json that differ from those of
        a new run.
        """
        cls.check_free(path)
        with disk_errors(path):
            remove_orphans(path)
            part, lock = make_part(path, folder=True)
            folder = cls(part)
            folder._hold(lock)
            try:
                write_text(part / "recipe.toml", recipe.to_toml())
                graph.save(part / "graph")
                if rules:
                    write_rules(part / "rules.tsv", rules)
                if vectors:
                    vectors.save(part / "init-vectors.safetensors")
                if members:
                    members.save(part / "members")
                folder.log.file.touch()
                fill(folder)
                checksums = {name: file_checksum(part / name) for name in folder.constant_files()}
                written = {"format": FORMAT if members else PLAIN_FORMAT, "files": checksums}
                description = {**_describe(graph, recipe), **(origin or {}), **written}
                write_checked_json(part / "run.json", description)
                folder._move_to(path)
            except BaseException:
                folder.remove()
                raise
        return folder

    def _move_to(self, path: Path) -> None:
        """Give the folder its name; what `check_free` let be there is removed."""
        old = None
        if path.exists() and any(path.iterdir()):
            old = RunFolder(path)
            old.lock()
            old.path = path.replace(part_name(path))
        try:
            self.path.replace(path)
        except OSError as error:
            if path.is_dir() and any(path.iterdir()):
                raise RunError(f"{path}: another process has just made it; choose another --out") from error
            raise
        self.path, self.log = path, RunLog(path / "log.jsonl")
        sync_folder(path.parent)
        if old:
            old.remove()

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Return an existing folder; raise RunError if it is not a run folder that this version reads."""
        check_path(path)
        with disk_errors(path):
            if not path.is_dir():
                raise RunError(f"{path}: no such run folder; pairre train GRAPH --out {shell_word(path)} makes one")
            for name in ("run.json", "recipe.toml", "graph"):
                if not (path / name).exists():
                    raise RunError(f"{path}: not a run folder ({name} is missing)")
        folder = cls(path)
        found = folder.format
        if type(found) is not int or not 1 <= found <= FORMAT:
            raise RunError(
                f"{path}: its format is {found}, and this version of pairre reads up to {FORMAT}; "
                "install a newer version: pip install --upgrade pairre"
            )
        return folder

    def lock(self) -> None:
        """Lock the folder for this process, and remove what a killed one left; the lock ends with the process."""
        with disk_errors(self.path):
            held = try_lock(self.path / "lock")
            if held is None:
                owner = (self.path / "lock").read_text(errors="replace").strip()
                raise RunError(f"{self.path}: in use by process {owner or '?'}")
            self._hold(held)
            remove_orphans(self.path)
            for part in list(self.path.rglob(".*.part")):
                with contextlib.suppress(OSError):
                    remove_orphan(part)

    def _hold(self, lock: IO[str]) -> None:
        """Keep a lock, and write into its file which process holds it."""
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def unlock(self) -> None:
        """End the lock."""
        if self._lock:
            self._lock.close()
            self._lock = None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder during a block."""
        self.lock()
        try:
            yield
        finally:
            self.unlock()

    def is_untrained(self) -> bool:
        """Return whether this is a run folder that holds nothing worth keeping: no step was stored in it."""
        if not (self.path / "run.json").exists():
            return False
        try:
            return not weight_files(self.path) and (self.checkpoint is None or self.stored_progress().step == 0)
        except RunError:
            return False  # damaged, so that nobody knows

    def remove(self) -> None:
        """Delete the folder and end the lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.unlock()

    # --- what the run is ---

    @property
    def format(self) -> Any:
        """The number of the folder's format; the key was called `version` in format 1."""
        value = self.description()
        return value.get("format", value.get("version"))

    def description(self) -> dict[str, Any]:
        """Return what run.json says."""
        return read_checked_json(self.path / "run.json", required=False)

    def origin(self) -> dict[str, Any]:
        """Return which run this one came from, and how; a run that was trained from the beginning has none."""
        found = self.description().get("origin", {})
        if not isinstance(found, dict):
            raise RunError(f"{self.path / 'run.json'}: damaged: its origin is not a table of values")
        return found

    def constant_files(self) -> list[str]:
        """Return the names of the files that never change once the folder exists."""
        names = ("recipe.toml", "rules.tsv", "init-vectors.safetensors")
        folders = [folder for folder in ("graph", "members") if (self.path / folder).is_dir()]
        files = (*names, *(f"{one}/{file.name}" for one in folders for file in (self.path / one).iterdir()))
        return sorted(name for name in files if (self.path / name).is_file())

    def verify(self) -> None:
        """Raise RunError if a file that never changes is not as it was when the run was made."""
        for fault in self.faults():
            raise RunError(f"{fault} (pairre check {shell_word(self.path)} looks at every file)")

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with the files that never change, a line each."""
        with disk_errors(self.path):
            if self.format == 1:
                if self.graph().fingerprint != self.description().get("fingerprint"):
                    yield f"{self.path / 'graph'}: damaged: it is not the graph that the run was trained on"
                return
            described = self.description()
            expected = described.get("files")
            if not isinstance(expected, dict):
                yield f"{self.path / 'run.json'}: damaged: it has no checksums of files"
                return
            checksums = {name: [checksum] for name, checksum in expected.items()}
            if "recipe.toml" in checksums:  # two, as a process may be killed while it replaces it
                checksums["recipe.toml"].append(described.get("next_recipe"))
            yield from checksum_faults(self.path, checksums, self.constant_files())

    def recipe(self) -> Recipe:
        """Return the resolved recipe."""
        return load_stored_recipe(self.path / "recipe.toml")

    def graph(self) -> Graph:
        """Return the graph that the run was trained on."""
        folder = self.path / "graph"
        try:
            return Graph.load(folder, str(self.description().get("graph")))
        except (pyarrow.ArrowException, safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
            raise GraphError(f"{folder}: damaged: {str(error).splitlines()[0]}") from error

    def members(self) -> Members | None:
        """Return the members of an ensemble, or None if the run is of one model."""
        folder = self.path / "members"
        return Members.load(folder) if folder.is_dir() else None

    def rules(self) -> list[Rule]:
        """Return the rules that the run obeys."""
        file = self.path / "rules.tsv"
        return read_rules(file) if file.exists() else []

    def init_vectors(self) -> InitVectors | None:
        """Return the vectors that training started from, or None if it drew all of them."""
        file = self.path / "init-vectors.safetensors"
        return InitVectors.load(file) if file.exists() else None

    # --- weights, checkpoint, metrics ---

    @property
    def checkpoint(self) -> Path | None:
        """The newest checkpoint, or None if there is none."""
        return checkpoint_path(self.path)

    def save_model(self, model: Model) -> None:
        """Store the weights of a model as the best ones; probabilities of earlier weights are removed first."""
        (self.path / "calibration.json").unlink(missing_ok=True)
        write_tensors(self.path / "model.safetensors", whole_weights(model), meaning_of(model))
        remove_shards(self.path)

    def load_model(self, model: Model, *, verify: bool = True, mapped: bool = False) -> None:
        """Copy the best weights into a model; with `mapped`, its tables are the file's, and must not be written to."""
        files = weight_files(self.path) or [self._missing("model.safetensors")]
        tensors = ShardFiles(files, verify=verify, required=self.format != 1).everything()
        self.copy_into(tensors, dict(model.state_dict(keep_vars=True)), "model.safetensors", mapped)

    def save_checkpoint(self, tensors: dict[str, Tensor], progress: Progress) -> None:
        """Store everything that the next step depends on, in one file; the log up to it is on disk before."""
        self.log.sync()
        write_tensors(self.path / "checkpoint.safetensors", tensors, {"progress": progress.to_json()})
        remove_folders(self.path)

    def load_checkpoint(self) -> tuple[dict[str, Tensor], Progress]:
        """Return what `save_checkpoint` stored, or several processes did."""
        path = self.checkpoint or self._missing("checkpoint.safetensors")
        found = read_checkpoint(path, required=self.format != 1)
        return found.files.everything(), found.progress

    def stored_progress(self) -> Progress:
        """Return the progress of the checkpoint, without its tensors."""
        return read_progress(self.checkpoint or self._missing("checkpoint.safetensors"))

    def copy_into(self, tensors: dict[str, Tensor], into: dict[str, Tensor], name: str, replace: bool = False) -> None:
        """Copy tensors into those of the same names, or `replace` these; RunError if one is missing or misshapen."""
        for key, target in into.items():
            if key not in tensors or tensors[key].shape != target.shape:
                raise RunError(f"{self.path / name}: damaged: '{key}' is missing or has another shape")
            with torch.no_grad():
                if replace:
                    target.data = tensors[key].to(target.dtype)
                else:
                    target.copy_(tensors[key])

    def _missing(self, name: str) -> Path:
        raise RunError(
            f"{self.path / name}: missing; the run has not got that far: continue it with pairre train … --resume"
        )

    def save_metrics(self, metrics: dict[str, Any]) -> None:
        """Write metrics.json."""
        write_checked_json(self.path / "metrics.json", metrics)

    def metrics(self) -> dict[str, Any] | None:
        """Return what metrics.json says, or None if training has not ended."""
        file = self.path / "metrics.json"
        return read_checked_json(file, required=self.format != 1) if file.exists() else None

    def save_calibration(self, calibration: Calibration) -> None:
        """Write calibration.json."""
        write_checked_json(self.path / "calibration.json", calibration.to_values())

    def calibration(self) -> Calibration | None:
        """Return what calibration.json says, or None if no probabilities are stored."""
        file = self.path / "calibration.json"
        if not file.exists():
            return None
        said = self.description()
        try:
            sizes = num_trained(self.origin(), said["num_entities"]), said["num_relations"]
            return Calibration.from_values(read_checked_json(file), *sizes)
        except ValueError as error:
            raise RunError(f"{file}: damaged: {error}") from error


def meaning_of(model: Model) -> dict[str, str]:
    """Return what must be known of weights beside their numbers."""
    return {"attached_with": json.dumps(model.attached_with)} if model.attached_with else {}


def _describe(graph: Graph, recipe: Recipe) -> dict[str, Any]:
    return {
        "graph": graph.name,
        "fingerprint": graph.fingerprint,
        "num_entities": graph.num_entities,
        "num_relations": graph.num_relations,
        "seed": recipe.train.seed,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
    }
