"""What training stores, loads and lets validation see: of one process, or of several that divide the entities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from pairre.runs import Progress, RunFolder
from pairre.runs.checkpoints import NewCheckpoint, read_checkpoint
from pairre.runs.folder import meaning_of
from pairre.runs.shard_files import ShardFiles, save_weights, weight_files
from pairre.support.background import Background
from pairre.support.errors import RunError
from pairre.support.host_memory import is_on_host
from pairre.support.memory import available_bytes
from pairre.tables import DividedRows, ShardedTable
from pairre.training.step import Trainer

_ROOM_FOR_A_COPY = 2  # times its size: steps and the system need some of what is free


class State(Protocol):
    """Everything that changes while a trainer learns, and the folder that keeps it if there is one."""

    pending: bool  # whether a checkpoint has been begun, and not finished

    def store_checkpoint(self) -> None:
        """Store everything that the next step depends on."""

    def begin_checkpoint(self) -> None:
        """Copy what the next step depends on, and store it while training goes on; none may be pending."""

    def is_writing(self) -> bool:
        """Return whether the pending checkpoint is still being written here."""

    def finish_checkpoint(self) -> None:
        """Wait until the pending checkpoint is written, and have it count; nothing if there is none."""

    def give_up_checkpoint(self) -> None:
        """Leave nothing half-written of a pending checkpoint, after an error."""

    def load_checkpoint(self) -> Progress:
        """Load the checkpoint of the folder, and return how far it is."""

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Have the model's sources of rows show the weights as they are now; the tables are flushed."""

    def keep_best(self) -> None:
        """Keep the weights, which are `shown`, as the best ones."""

    def load_best(self) -> None:
        """Leave the best weights in the model, which training then does not go on with."""


class WholeState:
    """The state of one process, whose model holds all rows."""

    def __init__(self, trainer: Trainer, folder: RunFolder | None) -> None:
        self._trainer, self._folder = trainer, folder
        self._best: dict[str, Tensor] = {}  # the best weights of a run without a folder
        self.pending, self._writer = False, Background()

    def store_checkpoint(self) -> None:
        """Store everything in one file."""
        self.finish_checkpoint()
        if self._folder:
            self._trainer.store_checkpoint(self._folder)

    def begin_checkpoint(self) -> None:
        """Store everything in one file while training goes on, or at once where memory has no room for a copy."""
        assert self._folder
        tensors = self._trainer.tensors()
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        if (available_bytes() or 0) < _ROOM_FOR_A_COPY * size:
            self.store_checkpoint()
            return
        self._writer.start(partial(self._folder.save_checkpoint, _copies(tensors), self._trainer.progress_now()))
        self.pending = True

    def is_writing(self) -> bool:
        """Return whether the file is still being written."""
        return self._writer.is_busy

    def finish_checkpoint(self) -> None:
        """Wait until the file is written."""
        self.pending = False
        self._writer.finish()

    def give_up_checkpoint(self) -> None:
        """Wait until the file is written, or not."""
        self._writer.give_up()

    def load_checkpoint(self) -> Progress:
        """Load the checkpoint of any number of processes."""
        assert self._folder
        tensors, progress = self._folder.load_checkpoint()
        self._folder.copy_into(tensors, self._trainer.tensors(), "checkpoint.safetensors")
        return progress

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Change nothing: the model has the tables."""
        yield

    def keep_best(self) -> None:
        """Keep all weights, in the folder or in memory."""
        if self._folder:
            self._folder.save_model(self._trainer.model)
        else:
            weights = self._trainer.model.state_dict().items()
            self._best = {n: v.to("cpu", copy=True) if is_on_host(v) else v.clone() for n, v in weights}

    def load_best(self) -> None:
        """Load all weights."""
        if self._folder:
            self._folder.load_model(self._trainer.model)
        elif self._best:
            self._trainer.model.load_state_dict(self._best)


class StateOverProcesses:
    """The state of this rank: a part of the entities, and what every rank has."""

    def __init__(self, trainer: Trainer, folder: RunFolder) -> None:
        self._trainer, self._folder, self._processes = trainer, folder, trainer.processes
        table = trainer.tables.tables["entity"]
        assert isinstance(table, ShardedTable)
        self._entity = table
        self._block = self._processes.block_of_rows(table.num_rows)
        self._stored: Progress | None = None  # of the checkpoint that was begun last
        self.pending, self._writer = False, Background()

    def _whole(self) -> dict[str, Tensor]:
        """Return the weights that every rank has."""
        return {name: value for name, value in self._trainer.model.state_dict().items() if name != "entity"}

    def _held(self) -> dict[str, Tensor]:
        """Return what is held of the entities in places of the training order, by the names of a checkpoint."""
        state = {f"optimizer.entity.{name}": value for name, value in self._entity.state().items()}
        return {"model.entity": self._entity.engine.rows, **state}

    def _replicated(self) -> dict[str, Tensor]:
        """Return what every rank has, by the names of a checkpoint."""
        named = {f"model.{name}": value for name, value in self._whole().items()}
        for name, table in self._trainer.tables.tables.items():
            if name != "entity":
                named |= {f"optimizer.{name}.{key}": value for key, value in table.state().items()}
        return named

    def store_checkpoint(self) -> None:
        """Store what is held in the order of ids, so that any number of processes can go on from it."""
        self.finish_checkpoint()
        self.begin_checkpoint()
        self.finish_checkpoint()

    def begin_checkpoint(self) -> None:
        """Bring what is held into the order of ids, which is a copy, and write it while training goes on."""
        progress = self._trainer.progress_now()
        if self._stored == (now := replace(progress, seconds=0)):
            return
        self._stored = now
        with self._processes.together():
            if self._processes.is_first:
                self._folder.log.sync()
        rows = {name: self._entity.held_to_ids(held).cpu() for name, held in self._held().items()}
        self._new = NewCheckpoint(self._folder.path, self._processes, progress)
        where = self._block.start, self._entity.num_rows
        self._writer.start(partial(self._new.write, rows, _copies(self._replicated()), *where))
        self.pending = True

    def is_writing(self) -> bool:
        """Return whether this rank's file is still being written."""
        return self._writer.is_busy

    def finish_checkpoint(self) -> None:
        """Wait until all processes have written, and give the checkpoint its name."""
        if self.pending:
            with self._processes.together():
                self._writer.finish()
            self._new.finish()
            self.pending = False

    def give_up_checkpoint(self) -> None:
        """Remove the files of all processes, without asking them."""
        self._writer.give_up()
        if self.pending:
            self._new.give_up()

    def load_checkpoint(self) -> Progress:
        """Load the checkpoint of any number of processes; each rank reads a block of ids, and sends rows to owners."""
        path = self._folder.checkpoint
        assert path
        with self._processes.together():
            stored = read_checkpoint(path)
            whole = stored.files.whole()
            self._folder.copy_into(whole, self._replicated(), path.name)
        for name, held in self._held().items():
            self._entity.fill_held(held, partial(stored.files.read, name))
        return stored.progress

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Put this rank's block of ids behind the model."""
        before = self._trainer.model.stored["entity"]
        self._show(self._entity.held_to_ids(self._entity.engine.rows))
        yield
        del self._shown
        self._trainer.model.set_rows(before)

    def _show(self, rows: Tensor) -> None:
        self._shown = rows
        self._trainer.model.set_rows(DividedRows(self._processes, rows, self._entity.num_rows))

    def keep_best(self) -> None:
        """Replace the files of all processes."""
        if self._processes.is_first:
            (self._folder.path / "calibration.json").unlink(missing_ok=True)
        tensors = {"entity": self._shown, **self._whole()}
        meaning = meaning_of(self._trainer.model)
        save_weights(self._folder.path, self._processes, tensors, self._block.start, self._entity.num_rows, meaning)

    def load_best(self) -> None:
        """Read this rank's block of ids, and what every rank has."""
        with self._processes.together():
            files = weight_files(self._folder.path)
            if not files:
                raise RunError(f"{self._folder.path}: has no weights")
            stored = ShardFiles(files)
            self._folder.copy_into(stored.whole(), self._whole(), files[0].name)
            rows = stored.read("entity", self._block.start, self._block.stop)
        self._show(torch.empty_like(rows, device=self._trainer.model.device).copy_(rows))


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies in the host's memory, which what comes after does not change."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
