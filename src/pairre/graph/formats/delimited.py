"""Delimited text: tab-separated, comma-separated and other tables of names.

Arrow's parser reads the file. Only if it refuses the file, or an empty name or an unclosed quote is suspected, is the
file read a second time line by line, so that the error message names the faulty line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

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

_BLOCK_SIZE = 16 << 20  # bytes that are parsed at once; each block has its own dictionary
_SAMPLE_LINES = 20  # lines that the delimiter is detected from
_Record = tuple[int, int, list[str]]  # first line, last line, cells


@register(".tsv", ".txt", ".csv", help="delimited text; the delimiter of .txt and .csv is detected")
def read_delimited(file: TripleFile) -> TripleColumns:
    """Return the triples of a text file."""
    table = _Table.detect(file)
    try:
        columns = TripleColumns(*table.read().columns)
    except pa.ArrowException as error:
        raise table.find_fault() or GraphError(f"{file.path}: {one_line(error)}") from error
    parts = (columns.head, columns.relation, columns.tail)
    if any(has_empty_name(column) for column in parts):
        raise table.find_fault() or GraphError(f"{file.path}: a name is empty")
    if table.quoted and (any(_has_line_break(column) for column in parts) or table.has_odd_quotes()):
        # Arrow lets an unclosed quote swallow the lines after it; the csv module reports it.
        fault = table.find_fault()
        if fault:
            raise fault
    return columns


@dataclass(frozen=True)
class _Table:
    """A text file and the layout that its first record shows."""

    file: TripleFile
    delimiter: str
    quoted: bool
    width: int  # cells of a record
    positions: list[int]  # of head, relation and tail
    num_skipped: int  # lines before the first triple

    @classmethod
    def detect(cls, file: TripleFile) -> _Table:
        """Return the table with delimiter, header and columns as the user or the first lines say."""
        quoted = file.ending == ".csv"
        delimiter = file.layout.delimiter or ("\t" if file.ending == ".tsv" else _detect_delimiter(file, quoted))
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '\r\n"':
            raise GraphError(f"delimiter {delimiter!r}: one ASCII character, no quote or line break, expected")
        first = next(_records(file, delimiter, quoted), None)
        if first is None:
            raise GraphError(f"{file.path}: the file is empty")
        start, end, cells = first
        header = file.layout.header if file.layout.header is not None else is_header(cells, file.layout)
        where = f"{file.path}:{start}"
        positions = find_columns(where, file.layout, cells if header else None, len(cells))
        return cls(file, delimiter, quoted, len(cells), positions, end if header else 0)

    def read(self) -> pa.Table:
        """Return the columns of head, relation and tail, read by Arrow's parser."""
        chosen = [f"c{i}" for i in self.positions]
        table = arrow_csv.read_csv(
            self.file.open(),
            read_options=arrow_csv.ReadOptions(
                column_names=[f"c{i}" for i in range(self.width)], skip_rows=self.num_skipped, block_size=_BLOCK_SIZE
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.delimiter, quote_char='"' if self.quoted else False, newlines_in_values=self.quoted
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(chosen, NAMES), include_columns=chosen, strings_can_be_null=False
            ),
        )
        return table.select(chosen)

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
            for member, position in zip(MEMBERS, self.positions, strict=True):
                if not cells[position].strip():
                    return GraphError(f"{path}:{start}: the {member} is empty")
        return GraphError(f"{path}: no triples in this file") if empty else None

    def has_odd_quotes(self) -> bool:
        """Return whether the number of quotes is odd, so that one of them is not closed."""
        with self.file.open() as stream:
            return bool(sum(block.count(b'"') for block in iter(lambda: stream.read(1 << 20), b"")) % 2)


def _records(file: TripleFile, delimiter: str, quoted: bool) -> Iterator[_Record]:
    """Yield every record that is not blank; a quoted cell may extend over several lines."""
    lines = file.lines()
    if not quoted:
        for number, line in lines:
            if text := line.rstrip("\r\n"):
                yield number, number, text.split(delimiter)
        return
    reader = csv.reader((text for _, text in lines), delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            fault = "a quote that is not closed before the next delimiter, or a name of more than 131,072 characters"
            raise GraphError(f"{file.path}:{start}: {fault}") from error
        if cells is None:
            return
        if cells:
            yield start, reader.line_num, cells


def _detect_delimiter(file: TripleFile, quoted: bool) -> str:
    """Return the delimiter that splits most of the first lines into equally many cells, three if possible."""
    lines = list(islice((text for _, text in file.lines() if text.strip("\r\n")), _SAMPLE_LINES))
    found, best = ",", (0.0, False)
    for delimiter in "\t,;| ":
        rows = csv.reader(lines, delimiter=delimiter) if quoted else (line.split(delimiter) for line in lines)
        try:
            widths = [len(row) for row in rows if row]
        except csv.Error:  # a cell is too long; reading the records reports where
            continue
        if widths and widths[0] >= 3:
            score = (widths.count(widths[0]) / len(widths), widths[0] == 3)
            if score > best:
                found, best = delimiter, score
    return found


def _has_line_break(column: pa.ChunkedArray) -> bool:
    return any(pc.any(pc.match_substring(c.dictionary, "\n")).as_py() for c in column.chunks)
