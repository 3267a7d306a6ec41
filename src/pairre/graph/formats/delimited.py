"""Delimited text: tab-separated, comma-separated and other tables of names.

Arrow's parser reads the file. Only if it refuses the file, or an empty name or an unclosed quote is suspected, is the
file read a second time line by line, so that the error message names the faulty line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from pairre.graph.formats.arrow import WEIGHT_EXPECTED, to_weights
from pairre.graph.formats.columns import count_columns, find_columns, is_header
from pairre.graph.formats.registry import (
    MEMBERS,
    NAMES,
    TripleColumns,
    TripleFile,
    has_empty_name,
    one_line,
    register,
)
from pairre.support.errors import GraphError
from pairre.support.reading import shortened

_BLOCK_SIZE = 16 << 20  # bytes that are parsed at once; each block has its own dictionary
_SAMPLE_LINES, _SAMPLE_CHARACTERS = 20, 1 << 20  # that the delimiter is detected from
_MAX_COLUMNS = 10_000
_Record = tuple[int, int, list[str]]  # first line, last line, cells


@register(".tsv", ".txt", ".csv", help="delimited text; the delimiter of .txt and .csv is detected")
def read_delimited(file: TripleFile) -> TripleColumns:
    """Return the triples of a text file."""
    table = TextTable.detect(file)
    try:
        table_columns = table.read().columns
    except pa.ArrowException as error:
        raise table.find_fault() or GraphError(f"{file.path}: {one_line(error)}") from error
    head, relation, tail, *weights = table_columns
    weight = table.checked_weights(weights[0]) if weights else None
    columns = TripleColumns(head, relation, tail, weight=weight, header_undecided=bool(table.first_row))
    parts = (head, relation, tail)
    if any(has_empty_name(column) for column in parts):
        raise table.find_fault() or GraphError(f"{file.path}: a name is empty")
    if table.quoted and (any(_has_line_break(column) for column in parts) or table.has_odd_quotes()):
        # Arrow lets an unclosed quote swallow the lines after it; the csv module reports it.
        fault = table.find_fault()
        if fault:
            raise fault
    return columns


@dataclass(frozen=True)
class TextTable:
    """A text file and the layout that its first record shows."""

    file: TripleFile
    delimiter: str
    quoted: bool
    width: int  # cells of a record
    positions: list[int]  # of head, relation, tail and, if there is one, weight
    num_skipped: int  # lines before the first triple
    first_row: list[str]  # its cells, if nobody said and no title showed that it is or is not a header; else empty

    @classmethod
    def detect(cls, file: TripleFile) -> TextTable:
        """Return the table with delimiter, header and columns as the user or the first lines say."""
        quoted = file.ending == ".csv"
        delimiter = file.layout.delimiter or ("\t" if file.ending == ".tsv" else _detect_delimiter(file, quoted))
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '\r\n"':
            raise GraphError(f"delimiter {delimiter!r}: one ASCII character, no quote or line break, expected")
        first = next(_records(file, delimiter, quoted), None)
        if first is None:
            raise GraphError(f"{file.path}: the file is empty")
        start, end, cells = first
        if len(cells) > _MAX_COLUMNS:
            raise GraphError(f"{file.path}:{start}: more than {_MAX_COLUMNS:,} columns")
        header = file.layout.header if isinstance(file.layout.header, bool) else is_header(cells, file.layout)
        where = f"{file.path}:{start}"
        positions = find_columns(where, file.layout, cells if header else None, len(cells))
        undecided = not header and not isinstance(file.layout.header, bool)
        first_row = [cells[position] for position in positions] if undecided else []
        return cls(file, delimiter, quoted, len(cells), positions, end if header else 0, first_row)

    def read(self) -> pa.Table:
        """Return the columns of head, relation, tail and weight, read by Arrow's parser."""
        chosen = [f"c{i}" for i in self.positions]
        types = dict.fromkeys(chosen[:3], NAMES) | dict.fromkeys(chosen[3:], pa.float64())
        table = arrow_csv.read_csv(
            self.file.open(),
            read_options=arrow_csv.ReadOptions(
                column_names=[f"c{i}" for i in range(self.width)], skip_rows=self.num_skipped, block_size=_BLOCK_SIZE
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.delimiter, quote_char='"' if self.quoted else False, newlines_in_values=self.quoted
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types, include_columns=chosen, strings_can_be_null=False
            ),
        )
        return table.select(chosen)

    def checked_weights(self, column: pa.ChunkedArray) -> np.ndarray:
        """Return the column of weights; a GraphError names the line of one that cannot be a weight."""
        weights, fault = to_weights(column.to_numpy())
        if fault is not None:
            raise self.find_fault() or GraphError(f"{self.file.path}: triple {fault + 1}: {WEIGHT_EXPECTED} as weight")
        return weights

    def find_fault(self) -> GraphError | None:
        """Return an error that names the first faulty line, or None; this reads the file line by line."""
        path, empty = self.file.path, True
        for start, _, cells in _records(self.file, self.delimiter, self.quoted):
            if start <= self.num_skipped:
                continue
            empty = False
            if len(cells) != self.width:
                members = f" ({', '.join(MEMBERS)})" if self.width == 3 else ""
                return GraphError(f"{path}:{start}: {count_columns(len(cells))}, expected {self.width}{members}")
            for member, position in zip(MEMBERS, self.positions[:3], strict=True):
                if not cells[position].strip():
                    return GraphError(f"{path}:{start}: the {member} is empty")
            for cell in (cells[position] for position in self.positions[3:]):
                if not _is_weight(cell):
                    ignoring = "--weights none leaves the column alone"
                    weight = shortened(cell, 50)
                    return GraphError(f"{path}:{start}: the weight is '{weight}'; {WEIGHT_EXPECTED} ({ignoring})")
        return GraphError(f"{path}: no triples in this file") if empty else None

    def has_odd_quotes(self) -> bool:
        """Return whether the number of quotes is odd, so that one of them is not closed."""
        with self.file.open() as stream:
            return bool(sum(block.count(b'"') for block in iter(lambda: stream.read(1 << 20), b"")) % 2)


def _records(file: TripleFile, delimiter: str, quoted: bool) -> Iterator[_Record]:
    """Yield every record that is not blank; a quoted cell may extend over several lines."""
    if not quoted:
        for number, line in file.lines():
            yield number, number, line.rstrip("\r\n").split(delimiter, _MAX_COLUMNS)
        return
    numbers: list[int] = []  # of the lines of the current record

    def lines() -> Iterator[str]:
        for number, text in file.lines():
            numbers[1:] = [number]
            yield text

    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    while True:
        numbers.clear()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            fault = "a quote that is not closed before the next delimiter, or a name of more than 131,072 characters"
            raise GraphError(f"{file.path}:{numbers[0]}: {fault}") from error
        if cells is None:
            return
        yield numbers[0], numbers[-1], cells


def _detect_delimiter(file: TripleFile, quoted: bool) -> str:
    """Return the delimiter that splits most of the first lines into equally many cells, three if possible."""
    lines: list[str] = []
    for _, text in islice(file.lines(), _SAMPLE_LINES):
        lines.append(text)
        if sum(map(len, lines)) > _SAMPLE_CHARACTERS:
            break
    found, best = ",", (0.0, False)
    for delimiter in "\t,;| ":
        rows = (
            csv.reader(lines, delimiter=delimiter)
            if quoted
            else (line.split(delimiter, _MAX_COLUMNS) for line in lines)
        )
        try:
            widths = [len(row) for row in rows if row]
        except csv.Error:  # a cell is too long; reading the records reports where
            continue
        if widths and widths[0] >= 3:
            score = (widths.count(widths[0]) / len(widths), widths[0] == 3)
            if score > best:
                found, best = delimiter, score
    return found


def _is_weight(cell: str) -> bool:
    try:
        return "_" not in cell and to_weights(np.array([float(cell)]))[1] is None
    except ValueError:
        return False


def _has_line_break(column: pa.ChunkedArray) -> bool:
    return any(pc.any(pc.match_substring(c.dictionary, "\n")).as_py() for c in column.chunks)


def read_open_rows(file: TripleFile) -> list[pa.ChunkedArray]:
    """Return the columns of head, relation and tail of a text file, in which names may be empty."""
    try:
        return list(TextTable.detect(file).read().columns[:3])
    except pa.ArrowException as error:
        raise GraphError(f"{file.path}: {shortened(one_line(error), 300)}") from error
