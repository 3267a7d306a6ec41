"""Files of tensors that several processes write together: each its block of rows, the first what belongs to no row.

Rows are in the order of ids. A file's metadata says which rows it has: `rows` is {name: [start, stop, total]}. Weights
are `model-00001-of-00002.safetensors` and so on in the run folder.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pairre.support.errors import RunError
from pairre.support.files import disk_errors, sync_folder
from pairre.support.processes import Processes
from pairre.support.tensors import read_metadata, read_tensors, write_tensors

_WEIGHTS = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")
_NEXT = "model.next"  # a folder of weights that are whole, and on their way to the names that they will have


def shard_name(stem: str, processes: Processes) -> str:
    """Return the name of this rank's file."""
    return f"{stem}-{processes.rank + 1:05}-of-{processes.size:05}.safetensors"


def write_rows(
    path: Path,
    rows: Mapping[str, Tensor],
    whole: Mapping[str, Tensor],
    start: int,
    total: int,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a file with rows from id `start` on of tables with `total` rows, and tensors that are `whole`."""
    blocks = {name: [start, start + len(block), total] for name, block in rows.items()}
    write_tensors(path, {**rows, **whole}, {**(metadata or {}), "rows": json.dumps(blocks)})


def write_shard(
    folder: Path,
    processes: Processes,
    tensors: Mapping[str, Tensor],
    start: int,
    total: int,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write this rank's file of a model's weights: its entity rows, and on the first rank all other tensors."""
    rows = {"entity": tensors["entity"]}
    whole = {name: value for name, value in tensors.items() if name != "entity"} if processes.is_first else {}
    write_rows(folder / shard_name("model", processes), rows, whole, start, total, metadata)


class ShardFiles:
    """Tensors of which each of several files has some rows; a file is compared with its checksum when it is opened."""

    def __init__(self, files: Sequence[Path], *, verify: bool = True, required: bool = True) -> None:
        """Note the files; `verify` and `required` are those of `read_tensors`."""
        self._files, self._verify, self._required = files, verify, required
        self._blocks = [_blocks_of(file) for file in files]
        self._opened: dict[Path, dict[str, Tensor]] = {}

    def metadata(self) -> dict[str, str]:
        """Return what the first file says beside its tensors."""
        return read_metadata(self._files[0])

    def _tensors(self, file: Path) -> dict[str, Tensor]:
        if file not in self._opened:
            self._opened[file], _ = read_tensors(file, verify=self._verify, required=self._required)
        return self._opened[file]

    def _tensor(self, file: Path, name: str) -> Tensor:
        if name not in self._tensors(file):
            raise RunError(f"{file}: damaged: '{name}' is missing")
        return self._tensors(file)[name]

    def whole(self) -> dict[str, Tensor]:
        """Return the tensors that only the first file has; all of them if it is the only one."""
        first = self._tensors(self._files[0])
        return {name: value for name, value in first.items() if len(self._files) == 1 or name not in self._blocks[0]}

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """Return the rows from `start` to `stop`, mapped from one file or copied from several."""
        parts = []
        for file, blocks in zip(self._files, self._blocks, strict=True):
            first, last = blocks[name][:2] if name in blocks else (0, len(self._tensor(file, name)))
            if (low := max(start, first)) < (high := min(stop, last)):
                parts.append(self._tensor(file, name)[low - first : high - first])
        if sum(map(len, parts)) != stop - start:
            raise RunError(f"{self._files[0].parent}: damaged: rows {start:,} to {stop:,} of '{name}' are missing")
        if not parts:  # no row is asked for, only the shape and the type
            return self._tensor(self._files[0], name)[:0]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def everything(self) -> dict[str, Tensor]:
        """Return all tensors, whole."""
        totals = {name: total for name, (_, _, total) in self._blocks[0].items()}
        return {**self.whole(), **{name: self.read(name, 0, total) for name, total in totals.items()}}


def _blocks_of(file: Path) -> dict[str, list[int]]:
    """Return which rows of which tensors a file has; none if it says nothing of rows."""
    said = read_metadata(file).get("rows", "{}")
    try:
        blocks = json.loads(said)
        assert all(0 <= start <= stop <= total for start, stop, total in blocks.values())
    except (ValueError, TypeError, AttributeError, AssertionError, RecursionError) as error:
        raise RunError(f"{file}: damaged: it does not say which rows it has") from error
    return dict(blocks)


# --- the weights of a run folder ---


def weight_files(folder: Path) -> list[Path]:
    """Return the files of the best weights: one, or one of each rank; none if there are no weights."""
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    _finish_replacing(folder)
    found = sorted(file for file in folder.glob("model-*-of-*.safetensors") if _WEIGHTS.fullmatch(file.name))
    sizes = {int(_WEIGHTS.fullmatch(file.name)[2]) for file in found}  # type: ignore[index]
    if found and sizes != {len(found)}:
        raise RunError(f"{folder}: damaged: of {max(sizes)} files of weights {len(found)} are there")
    return found


def save_weights(
    folder: Path,
    processes: Processes,
    tensors: Mapping[str, Tensor],
    start: int,
    total: int,
    metadata: Mapping[str, str],
) -> None:
    """Replace the weights of a run folder by those of all processes, all or none; every rank calls it."""
    part = folder / f".{_NEXT}.part"
    make_part(part, processes)
    with processes.together():
        write_shard(part, processes, tensors, start, total, metadata)
    with processes.together(), disk_errors(folder):
        if processes.is_first:
            sync_folder(part)
            part.replace(folder / _NEXT)
            _finish_replacing(folder)


def make_part(part: Path, processes: Processes) -> None:
    """Make the folder that every rank writes its file into, which gets another name when it is whole."""
    with processes.together(), disk_errors(part.parent):
        if processes.is_first:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()


def _finish_replacing(folder: Path) -> None:
    """Move weights that are whole to their names, after those that were there; also what a killed process left."""
    following = folder / _NEXT
    with disk_errors(folder):
        if not following.is_dir():
            return
        if moved := sorted(following.glob("model-*.safetensors")):
            end = moved[0].name.partition("-of-")[2]
            (folder / "model.safetensors").unlink(missing_ok=True)
            remove_shards(folder, but=end)
            for file in moved:
                with contextlib.suppress(FileNotFoundError):  # another process moves them, too
                    file.replace(folder / file.name)
        sync_folder(folder)
        shutil.rmtree(following, ignore_errors=True)


def remove_shards(folder: Path, but: str = "") -> None:
    """Remove the files of weights of processes, but for those whose name ends in a way."""
    for file in folder.glob("model-*-of-*.safetensors"):
        if _WEIGHTS.fullmatch(file.name) and not (but and file.name.endswith(but)):
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
