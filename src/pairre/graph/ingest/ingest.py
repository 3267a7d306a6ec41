"""Turn files of triples into a graph on disk, within a limit of memory, whole or not at all."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pairre.graph.formats.registry import Layout
from pairre.graph.ingest.build import STEPS, Counts, Split, Work, build
from pairre.graph.ingest.sources import find_source
from pairre.graph.split import DEFAULT_FRACTIONS, check_fractions
from pairre.graph.stored.files import StoredFiles
from pairre.graph.stored.fingerprint import fingerprint
from pairre.support.errors import GraphError, RunError
from pairre.support.files import disk_errors, make_part, remove_orphans, sync_folder, write_json
from pairre.support.memory import available_bytes, parse_bytes, readable_bytes
from pairre.support.reading import check_path
from pairre.support.version import __version__

MIN_MEMORY = 500_000_000


def ingest(
    source: str | Path,
    out: str | Path,
    *,
    memory: str | int | None = None,
    columns: Sequence[str | int] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    weights: str | None = None,
    keep_blank: bool = False,
    split: tuple[float, float, float] = DEFAULT_FRACTIONS,
    seed: int = 0,
    name: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Path:
    """Write the graph of files that may be larger than memory to the folder `out`, and return its path.

    `source` is a file, a folder of parts or with splits, or a glob; delimited text, Parquet or N-Triples. `load_graph`
    and whatever takes a graph take the folder. `memory` is what may be used, such as "2GB" or a number of bytes; half
    of what is free by default. `columns`, `header`, `delimiter`, `keep_blank`, `split` and `seed` are as in
    `load_graph`; `weights` can only be "none", which leaves a column titled `weight` alone. Repeated triples count
    once.

    The folder exists whole or not at all: what a killed ingest left is removed by the next one to the same folder.
    `progress` is called with the fraction of the work done since its last call.
    """
    picked = None if columns is None else tuple(str(column) for column in columns)
    layout = Layout(picked, header, delimiter, keep_blank=keep_blank, weights=weights)
    split = (split[0], split[1], split[2]) if len(split) == 3 else split  # a list will do
    check_fractions(split)
    budget, path = _budget(memory), Path(out)
    check_path(path)
    found = find_source(source, layout)
    if found.has_splits and (split != DEFAULT_FRACTIONS or seed):
        raise GraphError(f"{found.where}: has splits of its own; leave out --split and --split-seed")
    report = progress or (lambda _: None)
    with disk_errors(path), _made_whole(path) as folder:
        (temporary := folder / "work").mkdir()
        work = Work(found, path, folder, temporary, budget, lambda step, done: report(STEPS[step] * done))
        by_chance = None if found.has_splits else Split(split, seed)
        counts = build(work, by_chance)
        shutil.rmtree(temporary)
        _describe(work, counts, name or found.name, by_chance)
    return path


def _budget(memory: str | int | None) -> int:
    if memory is None:
        return max(MIN_MEMORY, (available_bytes() or 0) // 2)
    budget = memory if isinstance(memory, int) else parse_bytes(memory)
    if budget < MIN_MEMORY:
        raise GraphError(f"--memory {memory}: at least {readable_bytes(MIN_MEMORY)} expected")
    return budget


@contextmanager
def _made_whole(path: Path) -> Iterator[Path]:
    """Yield a folder that gets the name `path` when the block has filled it; an exception removes it."""
    if path.name in ("", "..") or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
        raise RunError(f"{path}: exists; choose another --out")
    remove_orphans(path)
    part, lock = make_part(path, folder=True)
    try:
        yield part
        part.replace(path)
        (path / "lock").unlink()
        sync_folder(path.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        lock.close()


def _describe(work: Work, counts: Counts, name: str, split: Split | None) -> None:
    """Write what the files do not say themselves, with a checksum of each file."""
    StoredFiles.describe(
        work.folder,
        {
            "name": name,
            "fingerprint": fingerprint(work.folder),
            **counts.as_dict(),
            "split": None if split is None else {"fractions": list(split.fractions), "seed": split.seed},
            "source": work.source.where,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "pairre": __version__,
        },
    )
    if counts.skipped:
        write_json(work.folder / "source.json", {"prefixes": {}, "skipped": dict(counts.skipped)})
    work.advance("checksums", 1.0)
