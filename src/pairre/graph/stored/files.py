"""The files of a graph on disk: which there are, how they are opened, checked, and shared with run folders.

N triples, P pairs of the index, E entities, R relations. Beside two vocabularies (see `vocabulary.py`) there are:

- `train`, `valid` and `test`: int32 [N, 3], sorted;
- for `known` (all splits) and `train`, the index of each of two sides, `tails` and `heads`: `pairs` int64 [P], `starts`
  int64 [P + 1] and `members` int32 [N], as `SideIndex` has them. Without valid and test there is no `known`, which
  would be that of train.

`graph.json` has sizes and checksums of all of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pairre.graph.stored.arrays import as_tensor, map_array
from pairre.support.errors import GraphError, RunError
from pairre.support.files import disk_errors, file_checksum, read_checked_json, write_checked_json
from pairre.support.memory import readable_bytes

if TYPE_CHECKING:  # ingest writes these files, and does without torch
    from pairre.graph.index import KnownTriples, Side

FORMAT = 1  # what this version writes and reads
DESCRIPTION = "graph.json"
INDEX_PARTS = ("pairs", "starts", "members")
IndexName = Literal["known", "train"]


def index_files(folder: Path, name: IndexName, side: str) -> dict[str, Path]:
    """Return the files of the index of one side."""
    return {part: folder / f"{name}-{side}-{part}.npy" for part in INDEX_PARTS}


@dataclass(frozen=True, eq=False)
class StoredFiles:
    """The folder that a graph is mapped from."""

    folder: Path
    description: Mapping[str, Any]

    @classmethod
    def open(cls, folder: Path) -> StoredFiles:
        """Return the files of a folder if this version reads them and all are there in their full size."""
        path = folder / DESCRIPTION
        try:
            description = read_checked_json(path)
        except RunError as error:
            raise GraphError(str(error)) from error
        if description.get("format") != FORMAT:
            raise GraphError(f"{path}: its format is {description.get('format')}; this version reads {FORMAT}")
        files = cls(folder, description)
        for name, (size, _) in files.expected().items():
            found = (folder / name).stat().st_size if (folder / name).is_file() else None
            if found != size:
                raise GraphError(f"{folder / name}: {'missing' if found is None else 'damaged: cut off or longer'}")
        return files

    @classmethod
    def describe(cls, folder: Path, values: Mapping[str, Any]) -> None:
        """Write `graph.json` for the files that are in a folder."""
        files = {file.name: [file.stat().st_size, file_checksum(file)] for file in sorted(folder.glob("*.npy"))}
        write_checked_json(folder / DESCRIPTION, {"format": FORMAT, **values, "files": files})

    def expected(self) -> dict[str, tuple[int, str]]:
        """Return the size and the checksum of each file."""
        return {str(name): (int(size), str(checksum)) for name, (size, checksum) in self.description["files"].items()}

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the graph, which was computed when it was written."""
        return str(self.description["fingerprint"])

    @property
    def num_bytes(self) -> int:
        """The size of all files."""
        return sum(size for size, _ in self.expected().values())

    def faults(self) -> Iterator[str]:
        """Yield what differs from its checksum, a line each; this reads every file."""
        for name, (_, checksum) in self.expected().items():
            if file_checksum(self.folder / name) != checksum:
                yield f"{self.folder / name}: damaged: its contents differ from its checksum"

    def split(self, name: str) -> Any:
        """Return the triples of a split, an int32 tensor [N, 3]."""
        return as_tensor(map_array(self.folder / f"{name}.npy", np.int32, 3))

    def index(self, name: IndexName, triples: Any, num_entities: int, num_relations: int) -> KnownTriples:
        """Return an index of triples, of which the sides of entities are on disk."""
        from pairre.graph.index import PAIR, KnownTriples, SideIndex

        sides: dict[str, Side] = {"tails": "tail", "heads": "head"}
        stored = {}
        for word, side in sides.items():
            parts = index_files(self.folder, name, word)
            pairs, starts = (map_array(parts[part], np.int64) for part in ("pairs", "starts"))
            members = map_array(parts["members"], np.int32)
            if len(starts) != len(pairs) + 1 or starts[-1] != len(members):
                raise GraphError(f"{parts['starts']}: damaged: it does not fit to the other files of the index")
            tensors = as_tensor(pairs), as_tensor(starts), as_tensor(members)
            stored[side] = SideIndex(*tensors, num_relations, num_entities, PAIR[side])
        return KnownTriples(triples, num_entities, num_relations, stored)

    def share(self, folder: Path) -> None:
        """Put the files into another folder: as hard links on the same file system, else as copies."""
        with disk_errors(folder):
            for name in [*self.expected(), DESCRIPTION]:
                try:
                    os.link(self.folder / name, folder / name)
                except OSError as error:
                    if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                        raise
                    self._copy(folder, name)

    def _copy(self, folder: Path, name: str) -> None:
        """Copy a file if there is room for it; `disk_errors` describes what else goes wrong."""
        source, target = self.folder / name, folder / name
        if (free := shutil.disk_usage(folder).free) < source.stat().st_size:
            raise RunError(
                f"{folder}: the graph of {readable_bytes(self.num_bytes)} is on another file system than the run, and "
                f"{readable_bytes(free)} are free for a copy; keep both on one"
            )
        shutil.copyfile(source, target)
        with contextlib.suppress(OSError), target.open("rb+") as file:
            os.fsync(file.fileno())
