"""The checkpoint of a run folder: one file of one process, or a folder with a file of each rank.

checkpoint.safetensors              everything, with the progress in its metadata
checkpoint-000123/                  of several processes; renamed whole when all of them have written
    rank-00001-of-00002.safetensors   rows and state of the optimiser for a block of ids; the first has all else, too
    progress.json                     the progress, and the checksum of each file

Any number of processes can go on from either.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from pairre.runs.progress import Progress
from pairre.runs.shard_files import ShardFiles, make_part, shard_name, write_rows
from pairre.support.errors import RunError
from pairre.support.files import disk_errors, read_checked_json, sync_folder, write_checked_json
from pairre.support.processes import Processes
from pairre.support.tensors import read_metadata

_FOLDER = re.compile(r"checkpoint-(\d{6,})(?:-(\d+))?")


@dataclass(frozen=True)
class Checkpoint:
    """A stored state of training."""

    progress: Progress
    files: ShardFiles


def checkpoint_path(folder: Path) -> Path | None:
    """Return the newest checkpoint of a run folder, a file or a folder; None if there is none."""
    file, found = folder / "checkpoint.safetensors", _folders(folder)
    if not found or (file.exists() and read_progress(file).step >= _step_and_serial(found[-1])[0]):
        return file if file.exists() else None
    return found[-1]


def _folders(folder: Path) -> list[Path]:
    """Return the checkpoints of processes, the oldest first."""
    return sorted((path for path in folder.glob("checkpoint-*") if _FOLDER.fullmatch(path.name)), key=_step_and_serial)


def _step_and_serial(path: Path) -> tuple[int, int]:
    found = _FOLDER.fullmatch(path.name)
    assert found
    return int(found[1]), int(found[2] or 0)


def read_progress(path: Path) -> Progress:
    """Return the progress of a checkpoint, without its tensors."""
    try:
        if path.is_dir():
            return Progress(**_description(path)["progress"])
        return Progress.from_json(read_metadata(path).get("progress", ""))
    except (ValueError, TypeError) as error:
        raise RunError(f"{path}: damaged: {error}") from error


def _description(path: Path) -> dict[str, Any]:
    said = read_checked_json(path / "progress.json")
    if not isinstance(said.get("progress"), dict) or not isinstance(said.get("files"), dict):
        raise RunError(f"{path / 'progress.json'}: damaged: it has no progress or no files")
    return said


def read_checkpoint(path: Path, *, required: bool = True) -> Checkpoint:
    """Return a checkpoint; its tensors are read when they are asked for, and then must be as their checksum says.

    Without `required`, a file without a checksum is accepted, as those of format 1 have none.
    """
    files = [path]
    if path.is_dir():
        expected = _description(path)["files"]
        files = [path / name for name in sorted(expected)]
        for file in files:
            if read_metadata(file).get("checksum") != expected[file.name]:
                raise RunError(f"{file}: damaged: it is not the file that was written")
    return Checkpoint(read_progress(path), ShardFiles(files, required=required))


class NewCheckpoint:
    """A checkpoint of all processes that is being written, all or nothing; every rank makes one, and finishes it."""

    def __init__(self, folder: Path, processes: Processes, progress: Progress) -> None:
        """Make its folder, which has another name until it is whole."""
        self._folder, self._processes, self._progress = folder, processes, progress
        self._part = folder / f".checkpoint-{progress.step:06}.part"
        make_part(self._part, processes)

    def write(self, rows: Mapping[str, Tensor], whole: Mapping[str, Tensor], start: int, total: int) -> None:
        """Write this rank's file; that exchanges nothing, so that it may go on in the background.

        `rows` are those of ids from `start` on, of `total` entities. What is `whole` is the same on every rank, and the
        first writes it.
        """
        kept = whole if self._processes.is_first else {}
        write_rows(self._part / shard_name("rank", self._processes), rows, kept, start, total)

    def finish(self) -> None:
        """Give the checkpoint its name, and remove older ones; all files are written."""
        with self._processes.together(), disk_errors(self._folder):
            if self._processes.is_first:
                files = sorted(self._part.glob("rank-*.safetensors"))
                checksums = {file.name: read_metadata(file)["checksum"] for file in files}
                described = {"progress": asdict(self._progress), "files": checksums}
                write_checked_json(self._part / "progress.json", described)
                older = [*_folders(self._folder), self._folder / "checkpoint.safetensors"]
                self._part.replace(_new_name(self._folder, self._progress.step))
                sync_folder(self._folder)
                remove_checkpoints(older)

    def give_up(self) -> None:
        """Remove what is written."""
        shutil.rmtree(self._part, ignore_errors=True)


def _new_name(folder: Path, step: int) -> Path:
    """Return a name that sorts after all checkpoints that are there."""
    same = [serial for at, serial in map(_step_and_serial, _folders(folder)) if at == step]
    return folder / f"checkpoint-{step:06}{f'-{max(same) + 1}' if same else ''}"


def remove_checkpoints(paths: list[Path]) -> None:
    """Remove checkpoints that a newer one has replaced."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remove_folders(folder: Path) -> None:
    """Remove the checkpoints of processes, after one process has stored a newer one."""
    remove_checkpoints(_folders(folder))
