"""What is ingested: a file, a folder of splits or of parts, or a glob, as a query that gives names to DuckDB.

A query has the columns `head`, `relation`, `tail`, `split` and `skipped`, which says why a row is no triple; it is null
for a triple, and for files of a format in which every row is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pairre.graph.formats.registry import NO_WEIGHTS, Layout, TripleFile, unreadable
from pairre.graph.ingest.readers import READERS, Reading
from pairre.graph.split import SPLIT_NAMES
from pairre.graph.streams import COMPRESSIONS, split_ending
from pairre.support.errors import GraphError
from pairre.support.reading import file_fault, shown

_GLOB = "*?["
_EXPANSION = 5  # of compressed files, about


@dataclass(frozen=True)
class Source:
    """The files of a graph, by split; without splits of its own all of them are `train`."""

    where: str  # what messages call it
    name: str  # what the graph is called
    has_splits: bool
    files: dict[str, list[Path]]
    readings: dict[str, list[Reading]]  # by split: files that are read alike

    @property
    def num_bytes(self) -> int:
        """The size of all files, compressed as they are."""
        return sum(file.stat().st_size for files in self.files.values() for file in files)

    @property
    def text_bytes(self) -> int:
        """About how much text the files hold."""
        every = [file for files in self.files.values() for file in files]
        packed = [file for file in every if split_ending(file)[1] or split_ending(file)[0] == ".parquet"]
        return self.num_bytes + (_EXPANSION - 1) * sum(file.stat().st_size for file in packed)

    @property
    def skips(self) -> bool:
        """Whether rows of the files may be something else than triples."""
        return any(reading.skips for readings in self.readings.values() for reading in readings)

    @property
    def first_rows(self) -> Iterator[tuple[Path, Sequence[str]]]:
        """Yield the first rows that may be headers."""
        for readings in self.readings.values():
            for reading in readings:
                yield from reading.first_rows

    def sql(self) -> str:
        """Return the query."""
        parts = []
        for position, split in enumerate(SPLIT_NAMES):
            for reading in self.readings.get(split, ()):
                parts.append(f"SELECT *, {position}::TINYINT AS split FROM ({reading.sql})")
        return " UNION ALL ".join(parts)

    def find_fault(self, message: str) -> GraphError | None:
        """Return an error that names file and row of what DuckDB complains about, or None if nothing is found."""
        every = [
            (file, reading) for readings in self.readings.values() for reading in readings for file in reading.files
        ]
        named = [(file, reading) for file, reading in every if str(file) in message]
        for file, reading in named or every:
            try:
                fault = reading.find_fault(file)
            except (GraphError, OSError) as error:
                fault = unreadable(file, error) if isinstance(error, OSError) else error
            if fault:
                return fault
        return None


def find_source(source: str | Path, layout: Layout) -> Source:
    """Return what a path or a glob stands for; a GraphError says what is wrong with it or with a file of it."""
    path, text = Path(source), shown(source)
    if any(character in str(source) for character in _GLOB) and not path.exists():
        found = sorted(file for file in _matches(path) if file.is_file())
        if not found:
            raise GraphError(f"{text}: no file is named like this; quote a pattern, so that the shell leaves it alone")
        return _source(text, found[0].parent.resolve().name, {"train": found}, False, layout)
    if path.is_dir():
        splits = _find_splits(path)
        if splits:
            return _source(text, path.resolve().name, splits, True, layout)
        parts = _readable_files(path)
        if not parts:
            raise GraphError(f"{text}: no file in this folder can be ingested; endings: {endings_help()}")
        return _source(text, path.resolve().name, {"train": parts}, False, layout)
    if fault := file_fault(path):
        raise GraphError(f"{text}: {fault}")
    return _source(text, path.name.split(".")[0], {"train": [path]}, False, layout)


def endings_help() -> str:
    """Return the endings that are read, as a phrase."""
    texts = " ".join(ending for ending, reader in READERS.items() if reader.can_be_compressed)
    return f"{texts} (each also {' or '.join(COMPRESSIONS)}) .parquet"


def _matches(path: Path) -> Iterator[Path]:
    parts = path.parts
    fixed = next(i for i, part in enumerate(parts) if any(character in part for character in _GLOB))
    return Path(*parts[:fixed]).glob(str(Path(*parts[fixed:])))


def _readable_files(folder: Path) -> list[Path]:
    """Return the files of a folder that have a known ending, in order of their names."""
    return sorted(file for file in folder.iterdir() if file.is_file() and split_ending(file)[0] in READERS)


def _find_splits(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each split: one of its name, or all in a folder of its name; empty without a train split."""
    found: dict[str, list[Path]] = {}
    for split, names in SPLIT_NAMES.items():
        files = [file for file in _readable_files(folder) if file.name.split(".")[0].lower() in names]
        folders = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name.lower() in names]
        candidates = [*([file] for file in files), *(_readable_files(path) for path in folders)]
        if len(candidates) > 1:
            named = [path.name for path in (*files, *folders)]
            raise GraphError(f"{folder}: {named[0]} and {named[1]} are both the {split} split; keep one")
        if candidates and candidates[0]:
            found[split] = candidates[0]
    if found and "train" not in found:
        raise GraphError(f"{folder}: no train file in this folder (train.tsv, train.parquet, train/, …)")
    return found


def _source(where: str, name: str, files: dict[str, list[Path]], has_splits: bool, layout: Layout) -> Source:
    if layout.weights not in (None, NO_WEIGHTS):
        raise GraphError(f"{where}: --weights {layout.weights}: graphs on disk have no weights; 'none' leaves them out")
    readings = {split: _readings(paths, layout) for split, paths in files.items()}
    return Source(where, name, has_splits, files, readings)


def _readings(files: Sequence[Path], layout: Layout) -> list[Reading]:
    """Return how files are read; those that are read alike are read by one query."""
    alike: dict[object, list[Reading]] = {}
    for file in files:
        if any(character in str(file) for character in _GLOB):
            raise GraphError(f"{shown(file)}: a path with one of {_GLOB} in it; rename it, or give a link to it")
        if fault := file_fault(file):
            raise GraphError(f"{shown(file)}: {fault}")
        ending, compression = split_ending(file)
        reader = READERS.get(ending)
        if reader is None or (compression and not reader.can_be_compressed):
            raise GraphError(f"{shown(file)}: this ending cannot be ingested; those that can: {endings_help()}")
        try:
            reading = reader.detect(TripleFile(file, layout))
        except OSError as error:
            raise unreadable(file, error) from error
        alike.setdefault(reading.how, []).append(reading)
    merged = []
    for group in alike.values():
        every = [file for reading in group for file in reading.files]
        rows = tuple(row for reading in group for row in reading.first_rows)
        merged.append(replace(group[0], files=tuple(every), first_rows=rows))
    return merged
