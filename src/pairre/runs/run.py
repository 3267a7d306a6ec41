"""A run in memory: a trained model with its graph and its recipe."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pairre.graph import Graph
from pairre.models import Ensemble, Model
from pairre.rules import Rule
from pairre.runs.build import build_model
from pairre.runs.calibration import Calibration, num_trained
from pairre.runs.folder import RunFolder
from pairre.runs.mapped_rows import Block, open_blocks, set_blocks, whole_weights
from pairre.runs.members import Members
from pairre.runs.shard_files import weight_files
from pairre.runs.unfinished import Unfinished
from pairre.runs.vectors import Table, Vectors, vector_chunks, vector_width
from pairre.settings import Recipe
from pairre.support.device import pick_device
from pairre.support.errors import RunError
from pairre.support.processes import ALONE, Processes
from pairre.support.reading import shortened
from pairre.support.tensors import read_metadata


@dataclass
class Run:
    """A trained model with the graph and the recipe it came from: what `evaluate` and `predict` take."""

    graph: Graph
    recipe: Recipe
    model: Model
    history: list[dict[str, Any]] = field(default_factory=list)
    path: Path | None = None
    rules: list[Rule] = field(default_factory=list)
    calibration: Calibration | None = None  # as stored or as fitted last; `evaluation.calibration_of` fits it
    origin: dict[str, Any] = field(default_factory=dict)  # which run it came from, and how, if it was not trained anew
    members: list[Recipe] = field(default_factory=list)  # of an ensemble: the recipes of its models, without rules
    prepared: Any = field(default=None, init=False, repr=False, compare=False)  # see inference/prepared.py

    def __repr__(self) -> str:
        where = self.path or "in memory"
        return f"Run({self.model.name}, {self.recipe.model.dim} features, {self.graph.name}, {where})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "prepared": None}

    @property
    def unfinished(self) -> Unfinished | None:
        """How far the run was trained, if it was stopped before its end; None if it has ended."""
        return None if self.path is None else Unfinished.of(self.path, self.recipe)

    @property
    def num_trained(self) -> int:
        """How many entities were there when the run was trained: all, unless `extend` has added others since."""
        return num_trained(self.origin, self.graph.num_entities)

    def entity_vectors(self) -> Vectors:
        """Return the names of all entities and their vectors as the score uses them, an array [E, D]."""
        return self._vectors("entities")

    def relation_vectors(self) -> Vectors:
        """Return the names of all relations and their vectors as they are stored, an array [R, D]."""
        return self._vectors("relations")

    def _vectors(self, table: Table) -> Vectors:
        names = getattr(self.graph, table)
        array = np.empty((len(names), vector_width(self.model, table)), np.float32)
        for start, rows in vector_chunks(self.model, table):
            array[start : start + len(rows)] = rows.cpu()
        return Vectors(names.names.to_pylist(), array)

    @property
    def writes(self) -> bool:
        """Whether this process writes and shows results: of several that share the rows, the first does."""
        processes = self.model.processes
        return processes is None or processes.is_first

    def save(self, path: str | Path) -> Path:
        """Write a run as a run folder, which exists whole or not at all, with all of its weights in one file."""

        def fill(folder: RunFolder) -> None:
            folder.save_model(self.model)
            folder.log.write(self.history)
            if self.calibration is not None:
                folder.save_calibration(self.calibration)

        origin = {"origin": self.origin} if self.origin else None
        members = Members.of(self.model, self.members) if isinstance(self.model, Ensemble) else None
        folder = RunFolder.create(Path(path), self.graph, self.recipe, self.rules, fill, origin, members=members)
        folder.unlock()
        self.path = folder.path
        return folder.path


def load_run(
    path: str | Path,
    device: str = "auto",
    *,
    verify: bool = True,
    mapped: bool = False,
    processes: Processes | None = None,
) -> Run:
    """Return the run of a folder, with its best weights.

    Every file that is read is compared with its checksum first. `verify=False` skips that, which saves time for tables
    of many gigabytes: hashing takes about as long as reading them from a fast disk. With `mapped`, tables on the CPU
    are those of the file, mapped into memory: processes that open the same run share one copy.

    Rows of entities in several files, as several processes train them, are never loaded together: those that are asked
    for are read, and all of them chunk by chunk. With several `processes` a run of any files is opened like that,
    and each of them ranks and searches among its share of the entities.
    """
    folder = RunFolder.open(Path(path))
    if verify:
        folder.verify()
    recipe, graph = folder.recipe(), folder.graph()
    members, chosen = folder.members(), pick_device(device)
    files, is_shared = weight_files(folder.path), processes is not None and processes.size > 1
    if len(files) > 1 or (files and is_shared):
        with (processes or ALONE).together():
            blocks = open_blocks(files, verify=verify, required=folder.format != 1, processes=processes)
        model = _model_of_blocks(folder, graph, recipe, chosen, blocks, processes)
    else:
        model = stored_model(folder, graph, recipe, members, chosen)
        folder.load_model(model, verify=verify, mapped=mapped and model.device.type == "cpu")
    model.requires_grad_(False)
    return Run(
        graph,
        recipe,
        model,
        folder.log.entries(),
        folder.path,
        folder.rules(),
        folder.calibration(),
        folder.origin(),
        [] if members is None else list(members.recipes),
    )


def _model_of_blocks(
    folder: RunFolder,
    graph: Graph,
    recipe: Recipe,
    device: torch.device,
    blocks: Sequence[Block],
    processes: Processes | None,
) -> Model:
    """Return the model of a folder that reads its rows of entities from files."""
    if (folder.path / "members").is_dir():
        raise RunError(f"{folder.path}: an ensemble, which one process opens: leave out torchrun")
    model = build_model(graph, recipe, device, False, stored_attachment(folder), holds_entities=False)
    others = {name: weights for name, weights in model.state_dict(keep_vars=True).items() if name != "entity"}
    folder.copy_into(blocks[0].file.tensors, others, blocks[0].file.path.name)
    set_blocks(model, blocks, processes)
    return model


def stored_model(
    folder: RunFolder, graph: Graph, recipe: Recipe, members: Members | None, device: torch.device
) -> Model:
    """Return the model of a folder, whose weights are about to be loaded."""
    if members is not None:
        return members.build(graph, device)
    if recipe.model.name == Ensemble.name:
        raise RunError(f"{folder.path / 'members'}: missing; restore it from a copy")
    return build_model(graph, recipe, device, False, stored_attachment(folder))


def stored_attachment(folder: RunFolder) -> tuple[float, int] | None:
    """Return bound and seed that the best weights go with (`Model.attach`), or None if they do not say it.

    Those of folders that were made before they were stored go with the recipe's.
    """
    files = weight_files(folder.path)
    said = read_metadata(files[0]).get("attached_with") if files else None
    if said is None:
        return None
    try:
        bound, seed = json.loads(said)
        if not 0 < float(bound) < math.inf:
            raise ValueError("the bound is no length")
        return float(bound), operator.index(seed)
    except (TypeError, ValueError, RecursionError) as error:
        raise RunError(f"{files[0]}: damaged: its weights go with '{shortened(said)}'") from error


def grown_model(base: Run, graph: Graph, device: torch.device) -> Model:
    """Return the model of a run with rows for all entities of a larger graph; those of new ones are not set yet."""
    model = build_model(graph, base.recipe, device, False, base.model.attached_with)
    grown = model.state_dict()
    for name, value in whole_weights(base.model).items():
        grown[name][: len(value)].copy_(value)
    return model
