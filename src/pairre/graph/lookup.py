"""Triples that a person gives by name become ids: all names of many rows at once, and every fault with its row."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from pairre.graph.formats import Layout, TripleFile, read_triples
from pairre.graph.formats.columns import find_columns
from pairre.graph.formats.delimited import read_open_rows
from pairre.graph.formats.registry import NAMES, one_line
from pairre.graph.graph import Graph
from pairre.graph.names import Names
from pairre.graph.streams import read_lines, split_ending
from pairre.support.errors import GraphError, NameNotFoundError, suggest
from pairre.support.reading import file_fault, shortened, shown
from pairre.support.table_files import PARQUET_FAULTS

_CHUNK = 1 << 20  # rows that are encoded at once
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_OPEN, _UNKNOWN = -1, -2  # in place of an id


@dataclass(frozen=True)
class FoundTriples:
    """Triples by id, and the rows that they came from."""

    triples: Tensor  # [N, 3] int64; −1 where a row leaves a member open
    rows: Tensor  # [N] int64, counted from 1
    num_unknown: int = 0  # rows that were left out because the graph lacks one of their names
    source: str = "triples"  # the name of the file, if they are from one


Row = Sequence[str | None]  # head, relation, tail
Rows = str | Path | Iterable[Row] | FoundTriples  # a file of triples, or the triples


def find_triples(
    graph: Graph, source: Rows, layout: Layout | None = None, *, skip_unknown: bool = False, open_members: bool = False
) -> FoundTriples:
    """Return the ids of the triples of a file or of rows of names.

    With `open_members` a row may leave members empty. A name that the graph lacks is a GraphError that says in which
    row, or with `skip_unknown` a row that is left out and counted.
    """
    if isinstance(source, FoundTriples):
        return source
    columns = _columns(source, layout or Layout(), open_members)
    every_names = (graph.entity_names, graph.relation_names, graph.entity_names)
    ids = np.stack([_ids(column, names) for column, names in zip(columns, every_names, strict=True)], 1)
    unknown = (ids == _UNKNOWN).any(1)
    name = Path(source).name if isinstance(source, str | Path) else FoundTriples.source
    if unknown.any() and not skip_unknown:
        row = int(unknown.argmax())
        member = int((ids[row] == _UNKNOWN).argmax())
        try:
            every_names[member].find(columns[member][row].as_py())
        except NameNotFoundError as error:
            raise NameNotFoundError(f"{name}: row {row + 1}: {error}") from error
    kept = np.flatnonzero(~unknown)
    return FoundTriples(torch.from_numpy(ids[kept]), torch.from_numpy(kept + 1), int(unknown.sum()), name)


def _columns(source: str | Path | Iterable[Row], layout: Layout, open_members: bool) -> list[pa.ChunkedArray]:
    """Return the columns of a file or of rows, encoded; open members are null or empty."""
    if isinstance(source, str | Path):
        if open_members:
            return _open_rows(Path(source), layout)
        columns = read_triples(Path(source), layout)
        return [columns.head, columns.relation, columns.tail]
    chunks: list[list[pa.Array]] = [[], [], []]
    remaining, num_rows = iter(source), 0
    while block := list(islice(remaining, _CHUNK)):
        for number, row in enumerate(block, start=num_rows + 1):
            if len(row) != 3 or not (open_members or all(row)) or isinstance(row, str):
                raise GraphError(f"triples: row {number}: {shortened(repr(row))}: head, relation and tail expected")
        for position, chunk in enumerate(chunks):
            chunk.append(pa.array([row[position] for row in block], pa.string()).dictionary_encode())
        num_rows += len(block)
    return [pa.chunked_array(chunk, NAMES) for chunk in chunks]


def _open_rows(path: Path, layout: Layout) -> list[pa.ChunkedArray]:
    """Return the columns of a file in which names may be empty."""
    if fault := file_fault(path):
        raise GraphError(f"{shown(path)}: {fault}")
    file = TripleFile(path, layout)
    try:
        if file.ending == ".parquet" and not file.compressed:
            with _parquet_faults(path):
                titles = list(pq.read_schema(path).names)
                chosen = [titles[position] for position in find_columns(str(path), layout, titles, len(titles))[:3]]
                if repeated := [title for title in chosen if titles.count(title) > 1]:
                    raise GraphError(f"{path}: two columns are named '{repeated[0]}'; give each its own name")
                table = pq.read_table(path, columns=chosen)
                table.validate(full=True)  # names may be no UTF-8
                return [table[title].cast(pa.string()).dictionary_encode() for title in chosen]
        if file.ending in (".tsv", ".txt", ".csv"):
            return read_open_rows(file)
    except OSError as error:
        raise GraphError(f"{path}: cannot be read: {error.strerror or error}") from error
    raise GraphError(f"{shown(path)}: a file of queries is .tsv, .txt, .csv (each also .gz or .zst) or .parquet")


def _ids(column: pa.ChunkedArray, names: Names) -> np.ndarray:
    """Return the id of every row of a column: −1 where it is open, −2 where no name fits."""
    result = [np.empty(0, np.int64)]
    for chunk in column.chunks:
        wanted = chunk.dictionary
        found = names.vocabulary.find_all(wanted).fill_null(_UNKNOWN)
        ids = np.append(found.to_numpy(zero_copy_only=False).astype(np.int64), _OPEN)
        for position in np.flatnonzero(ids == _UNKNOWN).tolist():
            text = wanted[position].as_py()
            id = names.find_or_none(text) if text.strip() else _OPEN
            ids[position] = _UNKNOWN if id is None else id
        result.append(ids[chunk.indices.fill_null(len(wanted)).to_numpy(zero_copy_only=False)])
    return np.concatenate(result)


def read_names(path: Path, column: str | None = None) -> list[str]:
    """Return the names in a file: one a line, or those of a column of a .csv, .tsv or .parquet file.

    A column is picked by its title; without one, the file must have a single column, and no header.
    """
    if fault := file_fault(path):
        raise GraphError(f"{shown(path)}: {fault}")
    ending = split_ending(path)[0]
    if ending == ".parquet":
        names = _parquet_names(path, column)
    elif ending in _DELIMITERS:
        lines = (line for _, line in read_lines(path))
        names = _delimited_names(path, csv.reader(lines, delimiter=_DELIMITERS[ending]), column)
    elif column is not None:
        raise GraphError(f"{shown(path)}: only a .csv, .tsv or .parquet file has columns")
    else:
        names = [line.rstrip("\r\n") for _, line in read_lines(path)]
    return [name for name in names if name.strip()]


def _delimited_names(path: Path, rows: Iterator[list[str]], column: str | None) -> list[str]:
    try:
        table = [row for row in rows if row]
    except csv.Error as error:
        raise GraphError(f"{path}: {error}") from error
    position = 0
    if column is not None:
        titles = table[0] if table else []
        if column not in titles:
            raise GraphError(f"{path}: no column {column!r}{suggest(column, titles)}")
        position, table = titles.index(column), table[1:]
    for number, row in enumerate(table, start=1):
        if len(row) <= position or (column is None and len(row) > 1):
            raise GraphError(
                f"{path}: row {number}: {len(row)} columns; pick one by its title: --candidates-column NAME"
            )
    return [row[position] for row in table]


def _parquet_names(path: Path, column: str | None) -> list[str]:
    with _parquet_faults(path):
        titles = pq.read_schema(path).names
        if column is None and len(titles) != 1:
            raise GraphError(f"{path}: {len(titles)} columns; pick one by its title: --candidates-column NAME")
        if column is not None and titles.count(column) != 1:
            raise GraphError(f"{path}: no column {column!r}{suggest(column, titles)}")
        return [
            str(name) for name in pq.read_table(path, columns=[column or titles[0]])[0].to_pylist() if name is not None
        ]


@contextmanager
def _parquet_faults(path: Path) -> Iterator[None]:
    """Turn what is wrong with a Parquet file into a GraphError of one line."""
    try:
        yield
    except PARQUET_FAULTS as error:
        raise GraphError(f"{path}: not a readable Parquet file: {one_line(error)}") from error
