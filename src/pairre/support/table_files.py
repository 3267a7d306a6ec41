"""Tables of results that are written batch by batch to a file: CSV, JSON or Parquet, whole or not at all."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from pairre.support.errors import PairREError
from pairre.support.files import check_new_file, written_whole
from pairre.support.reading import shown
from pairre.support.text import json_text

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_JSON_LINES = (".jsonl", ".ndjson")
ENDINGS = (*_DELIMITERS, ".json", *_JSON_LINES, ".parquet")
Write = Callable[[pa.Table], None]
PARQUET_FAULTS = (pa.ArrowException, OSError, UnicodeDecodeError)  # of a damaged file; the last if a title is no text


def check_table_file(path: Path, *, force: bool) -> None:
    """Raise a PairREError if a table cannot be written to a path: its ending, its folder, or a file that is there."""
    if path.suffix.lower() not in ENDINGS:
        raise PairREError(f"{shown(path)}: unknown ending; a table is written as one of {', '.join(ENDINGS)}")
    check_new_file(path, force=force)


@contextmanager
def table_file(path: Path | None, schema: pa.Schema) -> Iterator[Write]:
    """Yield a function that appends a table with this schema to a file; after the block the file is there, whole.

    Without a path nothing is written, as by a process that only helps to compute the table.
    """
    if path is None:
        yield lambda _: None
        return
    check_table_file(path, force=True)
    ending = path.suffix.lower()
    with written_whole(path) as part:
        if ending == ".parquet":
            with pq.ParquetWriter(part, schema, compression="zstd") as writer:
                yield writer.write_table
            return
        with part.open("w", encoding="utf-8", newline="") as file:
            if ending in _JSON_LINES:
                yield lambda table: file.writelines(json_text(row, indent=None) + "\n" for row in table.to_pylist())
                return
            if ending == ".json":
                yield from _array(file)
                return
            rows = csv.writer(file, delimiter=_DELIMITERS[ending], lineterminator="\n")
            rows.writerow(schema.names)
            yield lambda table: rows.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _array(file: IO[str]) -> Iterator[Write]:
    """Yield a function that appends the rows of a table to one JSON array, a row a line."""
    separators = chain(["[\n"], repeat(",\n"))

    def write(table: pa.Table) -> None:
        file.writelines(next(separators) + json_text(row, indent=None) for row in table.to_pylist())

    yield write
    file.write("[]\n" if next(separators) == "[\n" else "\n]\n")
