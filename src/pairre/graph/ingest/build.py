"""The steps of ingest: names, ids, order, split, index. Each reads what the one before wrote, piece by piece.

N triples, E entities, R relations.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pairre.graph.ingest.buckets import Buckets
from pairre.graph.ingest.database import Database
from pairre.graph.ingest.holdout import RandomOrder
from pairre.graph.ingest.indexes import IndexWriter
from pairre.graph.ingest.names import Names, collect_names, stands_alone
from pairre.graph.ingest.sources import Source
from pairre.graph.split import SPLIT_NAMES, num_held_out
from pairre.graph.stored.arrays import ArrayWriter, read_pieces
from pairre.support.errors import GraphError, RunError
from pairre.support.memory import readable_bytes
from pairre.support.reading import shortened

log = logging.getLogger("pairre")
STEPS = {"names": 0.35, "ids": 0.35, "order": 0.05, "split": 0.1, "index": 0.1, "checksums": 0.05}  # shares of the time
_DATABASE_SHARE = 0.7  # of the memory; the rest is for Python, its packages, and what is taken over from DuckDB
_BYTES_OF_KEY, _SORT_SHARE = 8, 0.1  # a bucket of keys takes that share of the memory
_BYTES_OF_TRIPLE = 100  # on disk, at most, of the graph and of what is beside it while it is made
_MAX_FIRST_ROWS = 16  # that are looked up
_PIECE = 1 << 18  # triples
_TRAIN = 0


@dataclass(frozen=True)
class Work:
    """What every step of one ingest needs."""

    source: Source
    path: Path  # of the graph, when it is whole
    folder: Path  # that will be the graph
    temporary: Path  # in it, removed at the end
    memory: int
    advance: Callable[[str, float], None]  # gets a step, and the fraction of it done since the last call


@dataclass(frozen=True)
class Split:
    """How triples are split by chance."""

    fractions: tuple[float, float, float]
    seed: int


@dataclass(frozen=True)
class Counts:
    """How much there is of everything."""

    num_entities: int
    num_relations: int
    num_triples: Mapping[str, int]  # by split
    num_repeated: int
    skipped: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def build(work: Work, split: Split | None) -> Counts:
    """Write all arrays of a graph; without a `split` by chance, the source has splits of its own."""
    names, buckets = _read(work)
    num = _order(work, buckets)
    if num < names.num_rows:
        log.warning("%s: %s repeated triples left out", work.source.where, f"{names.num_rows - num:,}")
    splits = _splits_given(work) if split is None else _splits_by_chance(work, names, num, split)
    by_tail = Buckets(work.temporary, "tails", num, names.num_entities, names.num_relations, _rows_in_bucket(work))
    counts = _write_splits(work, names, splits, by_tail)
    if split is None:
        _warn_of_unseen(work, names)
    else:
        _warn_of_few(work, counts, num_held_out(num, split.fractions))
    _write_heads(work, names, by_tail, held_out=counts["valid"] + counts["test"] > 0)
    return Counts(names.num_entities, names.num_relations, counts, names.num_rows - num, names.skipped)


def _rows_in_bucket(work: Work) -> int:
    return int(work.memory * _SORT_SHARE / _BYTES_OF_KEY)


def _check_disk(work: Work, needed: int) -> None:
    free = shutil.disk_usage(work.folder).free
    if free < needed:
        raise RunError(
            f"{work.path}: up to {readable_bytes(needed)} are needed on its disk, and {readable_bytes(free)} are free"
        )


def _read(work: Work) -> tuple[Names, Buckets]:
    """Read the files twice: for their names, then for their triples, which go to buckets by head."""
    source = work.source
    _check_disk(work, source.num_bytes)
    with Database(work.temporary, int(_DATABASE_SHARE * work.memory), source, work.advance) as database:
        names = collect_names(database, source, work.folder)
        _warn_of_headers(database, source)
        _check_disk(work, _BYTES_OF_TRIPLE * names.num_rows)
        sizes = names.num_entities, names.num_relations
        buckets, num = Buckets(work.temporary, "heads", names.num_rows, *sizes, _rows_in_bucket(work)), 0
        for batch in database.batches(names.join, step="ids"):
            if any(column.null_count for column in batch.columns):
                break
            buckets.add(*(column.to_numpy() for column in batch.columns))
            num += batch.num_rows
    if num != names.num_rows:
        raise GraphError(f"{source.where}: changed while it was read")
    return names, buckets


def _warn_of_headers(database: Database, source: Source) -> None:
    for file, cells in list(source.first_rows)[:_MAX_FIRST_ROWS]:
        if stands_alone(database, cells):
            row = ", ".join(f"'{shortened(cell, 50)}'" for cell in cells)
            log.warning(
                "%s: the first row (%s) may be a header: its names occur in no other row; kept as a triple; "
                "--header or --no-header settles it",
                *(file, row),
            )


# --- order and split ---


def _order(work: Work, buckets: Buckets) -> int:
    """Write the distinct triples in order, and the split that each came with; return how many there are."""
    triples_file, splits_file = _ordered_files(work)
    with ArrayWriter(triples_file, np.int32, 3) as triples, ArrayWriter(splits_file, np.int8) as splits:
        for rows in buckets.sorted(lambda done: work.advance("order", done)):
            triples.append(rows.triples)
            splits.append(rows.split)
        return triples.length


def _ordered_files(work: Work) -> tuple[Path, Path]:
    return work.temporary / "ordered.npy", work.temporary / "splits.npy"


def _read_ordered(work: Work) -> Iterator[np.ndarray]:
    return read_pieces(_ordered_files(work)[0], np.int32, 3, rows=_PIECE)


def _splits_given(work: Work) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the triples in order, with the split that each came with."""
    yield from zip(_read_ordered(work), read_pieces(_ordered_files(work)[1], np.int8, rows=_PIECE), strict=True)


def _splits_by_chance(work: Work, names: Names, num: int, split: Split) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the triples in order, with a split that is drawn for each."""
    sizes, file = (num, names.num_entities, names.num_relations), work.temporary / "places.npy"
    order = RandomOrder(file, lambda: _read_ordered(work), _PIECE, sizes, split.seed)
    held = order.hold_out(split.fractions)
    work.advance("split", 0.75)
    for triples, places in order.free_places():
        yield triples, held.splits(places)
    file.unlink()


def _write_splits(
    work: Work, names: Names, rows: Iterator[tuple[np.ndarray, np.ndarray]], by_tail: Buckets
) -> dict[str, int]:
    """Write the splits and the index of tails, put the triples into buckets by tail, and return the sizes of splits."""
    writers = [ArrayWriter(work.folder / f"{split}.npy", np.int32, 3) for split in SPLIT_NAMES]
    known, train = (IndexWriter(work.folder, name, "tails", names.num_relations) for name in ("known", "train"))
    for triples, split in rows:
        for position, writer in enumerate(writers):
            writer.append(triples[split == position])
        known.append(triples)
        train.append(triples[split == _TRAIN])
        by_tail.add(triples[:, 2], triples[:, 1], triples[:, 0], split)
    for writer in writers:
        writer.close()
    known.close()
    train.close()
    for file in _ordered_files(work):
        file.unlink()
    work.advance("split", 0.25)
    return {split: writer.length for split, writer in zip(SPLIT_NAMES, writers, strict=True)}


def _write_heads(work: Work, names: Names, by_tail: Buckets, *, held_out: bool) -> None:
    """Write the index of heads; without held-out triples, the index of all triples is that of train."""
    known, train = (IndexWriter(work.folder, name, "heads", names.num_relations) for name in ("known", "train"))
    for rows in by_tail.sorted(lambda done: work.advance("index", done)):
        known.append(rows.triples)
        train.append(rows.triples[rows.split == _TRAIN])
    known.close()
    train.close()
    if not held_out:
        for file in work.folder.glob("known-*.npy"):
            file.unlink()


def _warn_of_few(work: Work, counts: Mapping[str, int], wanted: list[int]) -> None:
    if (found := counts["valid"] + counts["test"]) < sum(wanted):
        log.warning(
            "%s: %s triples held out instead of %s, so that train has every entity and relation",
            *(work.source.where, f"{found:,}", f"{sum(wanted):,}"),
        )


def _warn_of_unseen(work: Work, names: Names) -> None:
    """Log how many held-out triples have an entity or a relation that does not occur in train."""
    entities, relations = np.zeros(names.num_entities, np.bool_), np.zeros(names.num_relations, np.bool_)
    for triples in read_pieces(work.folder / "train.npy", np.int32, 3):
        entities[triples[:, 0]] = entities[triples[:, 2]] = relations[triples[:, 1]] = True
    for split in ("valid", "test"):
        num = num_unseen = 0
        for triples in read_pieces(work.folder / f"{split}.npy", np.int32, 3):
            seen = entities[triples[:, 0]] & entities[triples[:, 2]] & relations[triples[:, 1]]
            num, num_unseen = num + len(triples), num_unseen + int((~seen).sum())
        if num_unseen:
            log.warning(
                "%s: %s of %s %s triples have an entity or relation that train never shows; kept, but scored by guess",
                *(work.source.where, f"{num_unseen:,}", f"{num:,}", split),
            )
