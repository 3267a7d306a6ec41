"""The weights of a run in several files (`shard_files.py`), opened without loading a table.

Each file has a contiguous block of the rows of entities; what else the model has is in the first. Files are mapped into
memory: rows that are asked for are read by themselves, and all rows chunk by chunk. A whole file is one block.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.kernels import compute_dtype
from pairre.models import LocalRows, Model, RowSource, require_all_rows
from pairre.models.scoring import held_places
from pairre.support.errors import RunError
from pairre.support.processes import Processes
from pairre.support.reading import shortened
from pairre.support.tensors import MappedTensors

WHOLE = "model.safetensors"
_COPIED_AT_ONCE = 1 << 22  # elements
_TOUCHED_AT_ONCE = 1 << 10  # rows anywhere in a file: reading one maps up to 64 KiB around it


@dataclass(frozen=True)
class Block:
    """The rows of entities from `start` to before `stop` and the file that has them."""

    file: MappedTensors
    start: int
    stop: int
    total: int  # of all files

    @classmethod
    def of(cls, path: Path, *, required: bool = True) -> Block:
        """Return the block of a file; a RunError says what is wrong with it."""
        file = MappedTensors(path, required=required)
        table = file.tensors.get("entity")
        if table is None or table.dim() != 2:
            raise RunError(f"{path}: damaged: 'entity' is missing or has another shape")
        said = file.metadata.get("rows")
        if said is None and path.name == WHOLE:
            return cls(file, 0, len(table), len(table))
        try:
            start, stop, total = (operator.index(number) for number in json.loads(said or "")["entity"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise RunError(f"{path}: damaged: its rows are '{shortened(said or '')}'") from error
        if not 0 <= start <= stop <= total or stop - start != len(table):
            raise RunError(f"{path}: damaged: it has {len(table):,} rows, and says {start:,} to {stop:,} of {total:,}")
        return cls(file, start, stop, total)

    @property
    def table(self) -> Tensor:
        """The rows."""
        return self.file.tensors["entity"]


def open_blocks(
    paths: Sequence[Path], *, verify: bool = True, required: bool = True, processes: Processes | None = None
) -> list[Block]:
    """Return the blocks of files that go together; a RunError names a file that is damaged or does not fit the others.

    With `verify` every file is compared with its checksum, which it must have if `required`; `processes` divide that
    work.
    """
    blocks = [Block.of(path, required=required) for path in paths]
    first, end = blocks[0], 0
    for block in blocks:
        path, table = block.file.path, block.table
        if block.start != end:
            what = "missing" if block.start > end else "there twice"
            rows = f"rows {min(end, block.start):,} to {max(end, block.start):,} are {what}"
            raise RunError(f"{path}: damaged: it begins at row {block.start:,}, so that {rows}")
        if (block.total, table.shape[1], table.dtype) != (first.total, first.table.shape[1], first.table.dtype):
            raise RunError(f"{path}: damaged: rows of another number, width or type than in {first.file.path.name}")
        for key in block.file.metadata.keys() & first.file.metadata.keys() - {"rows"}:
            if block.file.metadata[key] != first.file.metadata[key]:
                raise RunError(f"{path}: damaged: stored at another time than {first.file.path.name}: '{key}' differs")
        end = block.stop
    if end != first.total:
        raise RunError(f"{blocks[-1].file.path}: damaged: rows {end:,} to {first.total:,} are missing")
    if verify:
        for block in blocks[processes.rank :: processes.size] if processes else blocks:
            block.file.verify()
    return blocks


class BlockRows(RowSource):
    """The rows of entities in the files of a run; memory holds those that were asked for, or one chunk.

    With `processes`, each process walks over its share of the rows. All of them read all files.
    """

    def __init__(self, model: Model, blocks: Sequence[Block], processes: Processes | None = None) -> None:
        self._model, self._blocks = model, blocks
        self.processes = processes if processes is not None and processes.size > 1 else None
        self.num_rows, self.width = blocks[0].total, blocks[0].table.shape[1]
        self._stops = torch.tensor([block.stop for block in blocks])
        self._dtype = compute_dtype(blocks[0].table.dtype)
        self._touched = 0

    def gather(self, ids: Tensor) -> Tensor:
        """Return the rows of some ids [*ids.shape, width], in the precision they are computed with."""
        flat = ids.flatten().cpu().contiguous()
        rows = torch.empty(len(flat), self.width, dtype=self._dtype)
        for start in range(0, len(flat), _TOUCHED_AT_ONCE):
            self._read(flat[start : start + _TOUCHED_AT_ONCE], rows[start : start + _TOUCHED_AT_ONCE])
        return rows.view(*ids.shape, self.width).to(ids.device)

    def gather_held(self, ids: Tensor) -> tuple[int, Tensor]:
        """Return the rows of those of ids [N], ascending, that are this process's, and the place of the first."""
        first, stop = held_places(self, ids)
        return first, self.gather(ids[first:stop])

    def chunks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the rows that are this process's in chunks of at most `size`, each with the id of its first."""
        mine = self.processes.block_of_rows(self.num_rows) if self.processes else range(self.num_rows)
        for start in range(mine.start, mine.stop, size):
            yield start, self._copy(start, min(start + size, mine.stop)).to(self._model.device)

    def write(self, ids: Tensor, rows: Tensor) -> None:  # noqa: ARG002
        """Refuse: the files are those of the run."""
        raise RunError(f"{self._blocks[0].file.path.parent}: its rows are in files, and stay as they are")

    def _read(self, ids: Tensor, rows: Tensor) -> None:
        """Read the rows of ids [N]."""
        number = torch.searchsorted(self._stops, ids, right=True)
        for one in torch.unique(number).tolist():
            block, place = self._blocks[one], (number == one).nonzero()[:, 0]
            rows[place] = F.embedding(ids[place] - block.start, block.table).to(self._dtype)
        self._touched += len(ids)
        if self._touched > _TOUCHED_AT_ONCE:
            for block in self._blocks:
                block.file.release()
            self._touched = 0

    def _copy(self, start: int, stop: int) -> Tensor:
        """Return the rows from `start` to before `stop`; pages that were read for that are given back."""
        rows = torch.empty(stop - start, self.width, dtype=self._dtype)
        size = max(1, _COPIED_AT_ONCE // self.width)
        for block in self._blocks:
            for first in range(max(start, block.start), min(stop, block.stop), size):
                last = min(first + size, stop, block.stop)
                rows[first - start : last - start] = block.table[first - block.start : last - block.start]
                block.file.release()
        return rows


def whole_weights(model: Model) -> dict[str, Tensor]:
    """Return the weights of a model by name; rows of entities that are elsewhere are read into memory."""
    weights: dict[str, Tensor] = dict(model.state_dict())
    for name, value in weights.items():
        if value.is_meta:
            owner = model.get_submodule(name.rpartition(".")[0])
            assert isinstance(owner, Model)
            source = owner.stored["entity"]
            require_all_rows(source, "a copy of the weights")
            weights[name] = table = torch.empty_like(value, device="cpu")
            for start, rows in source.chunks(max(1, _COPIED_AT_ONCE // source.width)):
                table[start : start + len(rows)] = rows
    return weights


def set_blocks(model: Model, blocks: Sequence[Block], processes: Processes | None = None) -> None:
    """Have a model read its rows of entities from files."""
    path = blocks[0].file.path
    if model.entity.shape != (blocks[0].total, blocks[0].table.shape[1]):
        raise RunError(f"{path}: damaged: 'entity' is missing or has another shape")
    model.set_rows(BlockRows(model, blocks, processes), LocalRows(model.relation))
