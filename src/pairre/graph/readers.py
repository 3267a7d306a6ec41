"""Files of triples → Arrow columns: formats by suffix, headers, columns, and errors that name file and line.

The fast path is Arrow's own parser. Only when it refuses a file, or an empty name turns up, is the file read again
line by line to say exactly where the fault is.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from pairre.graph.rdf import RDF_SUFFIXES, read_rdf
from pairre.support.errors import GraphError, suggest

DELIMITED = {".tsv": "\t", ".txt": None, ".csv": None}  # None: found out from the first line
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
SUFFIXES = (*DELIMITED, ".parquet", *RDF_SUFFIXES)
ROLES = ("head", "relation", "tail")
_NAMES = pa.dictionary(pa.int32(), pa.string())
# Well-known titles, the plainest first: it is taken where a file has two of one role.
_HEADERS = (
    ("head", "h", "head_id", "subject", "subj", "s", "subject_id", "source", "src", "from", "start"),
    ("relation", "rel", "r", "relation_id", "predicate", "pred", "p", "property", "edge", "type", "label"),
    ("tail", "t", "tail_id", "object", "obj", "o", "object_id", "target", "dst", "to", "end"),
)
_NAME_TYPES = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_integer),
)
_BLOCK = 16 << 20  # bytes parsed at once, each block with its own dictionary
_SAMPLE = 20  # lines that the delimiter is found out from


@dataclass(frozen=True)
class Layout:
    """How a delimited or Parquet file is laid out; what is None is found out from the file."""

    columns: tuple[str, str, str] | None = None  # names, or numbers from 1
    header: bool | None = None
    delimiter: str | None = None


@dataclass(frozen=True)
class TripleColumns:
    """The triples of one file, three dictionary-encoded columns of names."""

    head: pa.ChunkedArray
    relation: pa.ChunkedArray
    tail: pa.ChunkedArray
    num_literals: int = 0


def split_suffix(path: Path) -> tuple[str, str | None]:
    """`graph.nt.gz` → (".nt", "gzip"); an unknown suffix comes back as it is."""
    suffixes = [s.lower() for s in path.suffixes]
    compression = COMPRESSED.get(suffixes[-1]) if suffixes else None
    if compression:
        suffixes.pop()
    return (suffixes[-1] if suffixes else ""), compression


def read_triples(path: Path, layout: Layout | None = None) -> TripleColumns:
    """Read one file of triples in whatever format its suffix says."""
    layout = layout or Layout()
    suffix, compression = split_suffix(path)
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise GraphError(
            f"{path}: unknown format '{suffix or path.name}'; known suffixes: {known}, each also .gz or .zst"
        )
    if not path.is_file():
        raise GraphError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    try:
        if suffix in RDF_SUFFIXES:
            with pa.input_stream(str(path), compression=compression) as stream:
                chunks, num_literals = read_rdf(path, stream, RDF_SUFFIXES[suffix])
            head, relation, tail = (pa.chunked_array(c, _NAMES) for c in chunks)
            columns = TripleColumns(head, relation, tail, num_literals)
        elif suffix == ".parquet":
            columns = _read_parquet(path, compression, layout)
        else:
            columns = _read_delimited(path, layout)
    except OSError as error:
        raise GraphError(f"{path}: cannot be read: {_why(error)}") from error
    if len(columns.head) == 0:
        what = f" ({columns.num_literals:,} literals skipped)" if columns.num_literals else ""
        raise GraphError(f"{path}: no triples in this file{what}")
    return columns


def _why(error: OSError) -> str:
    """Arrow's errors carry no errno; say what they mean for a file of triples."""
    text = _one_line(error.strerror or error)
    if "Truncated compressed stream" in text:
        return "the compressed file is cut off; fetch or write it again"
    if "inflate failed" in text or "ZSTD" in text:
        return f"it is not what its suffix says, or damaged ({text})"
    return text


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


# --- delimited text -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Text:
    """A delimited file as its first record shows it."""

    path: Path
    compression: str | None
    delimiter: str
    quoted: bool
    width: int
    picked: list[int]  # positions of head, relation and tail
    skip: int  # lines before the first triple

    @classmethod
    def look(cls, path: Path, layout: Layout) -> _Text:
        """Find out delimiter, header and columns from the first lines."""
        suffix, compression = split_suffix(path)
        quoted = suffix == ".csv"
        delimiter = layout.delimiter or DELIMITED[suffix]
        if delimiter is None:
            filled = (text for _, text in read_lines(path, compression) if text.strip("\r\n"))
            delimiter = _sniff(list(islice(filled, _SAMPLE)), quoted)
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '\r\n"':
            raise GraphError(f"delimiter {delimiter!r}: one ASCII character, no quote or line break, expected")
        first = next(_records(path, compression, delimiter, quoted), None)
        if first is None:
            raise GraphError(f"{path}: the file is empty")
        start, end, cells = first
        header = layout.header if layout.header is not None else _is_header(cells, layout)
        picked = _pick(f"{path}:{start}", layout, cells if header else None, len(cells))
        return cls(path, compression, delimiter, quoted, len(cells), picked, end if header else 0)

    def read(self) -> pa.Table:
        """Head, relation and tail by Arrow's parser."""
        wanted = [f"c{i}" for i in self.picked]
        table = arrow_csv.read_csv(
            pa.input_stream(str(self.path), compression=self.compression),
            read_options=arrow_csv.ReadOptions(
                column_names=[f"c{i}" for i in range(self.width)], skip_rows=self.skip, block_size=_BLOCK
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.delimiter, quote_char='"' if self.quoted else False, newlines_in_values=self.quoted
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, _NAMES), include_columns=wanted, strings_can_be_null=False
            ),
        )
        return table.select(wanted)

    def fault(self) -> GraphError | None:
        """Read the file again, slowly, and name the first line that is wrong."""
        empty = True
        for start, _, cells in _records(self.path, self.compression, self.delimiter, self.quoted):
            if start <= self.skip:
                continue
            empty = False
            if len(cells) != self.width:
                roles = f" ({', '.join(ROLES)})" if self.width == 3 else ""
                return GraphError(f"{self.path}:{start}: {_count(len(cells))}, expected {self.width}{roles}")
            for role, position in zip(ROLES, self.picked, strict=True):
                if not cells[position].strip():
                    return GraphError(f"{self.path}:{start}: the {role} is empty")
        return GraphError(f"{self.path}: no triples in this file") if empty else None

    def has_odd_quotes(self) -> bool:
        """Whether the quotes of the file can not all be pairs."""
        with pa.input_stream(str(self.path), compression=self.compression) as stream:
            return bool(sum(block.count(b'"') for block in iter(lambda: stream.read(1 << 20), b"")) % 2)


def _read_delimited(path: Path, layout: Layout) -> TripleColumns:
    text = _Text.look(path, layout)
    try:
        columns = TripleColumns(*text.read().columns)
    except pa.ArrowException as error:
        raise text.fault() or GraphError(f"{path}: {_one_line(error)}") from error
    parts = (columns.head, columns.relation, columns.tail)
    if any(_has_empty(column) for column in parts):
        raise text.fault() or GraphError(f"{path}: a name is empty")
    if text.quoted and (any(_has_line_break(column) for column in parts) or text.has_odd_quotes()):
        # Arrow lets a quote that is never closed swallow the lines after it; csv.reader does not.
        fault = text.fault()
        if fault:
            raise fault
    return columns


def read_lines(path: Path, compression: str | None) -> Iterator[tuple[int, str]]:
    """(number, text with its line end) of each line; like Arrow, a lone carriage return ends one too."""
    with pa.input_stream(str(path), compression=compression) as stream:
        parts = (part for line in io.BufferedReader(stream) for part in line.splitlines(keepends=True))
        for number, part in enumerate(parts, start=1):
            line = part.removeprefix(b"\xef\xbb\xbf") if number == 1 else part
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                where = f"{path}:{number}: invalid UTF-8 (byte 0x{line[error.start]:02x} at position {error.start + 1})"
                raise GraphError(where) from error
            yield number, text


def _records(path: Path, compression: str | None, delimiter: str, quoted: bool) -> Iterator[tuple[int, int, list[str]]]:
    """(first line, last line, cells) of each record that is not blank; a quoted cell may run over several lines."""
    lines = read_lines(path, compression)
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
            what = "a quote that is not closed before the next delimiter, or a name of more than 131,072 characters"
            raise GraphError(f"{path}:{start}: {what}") from error
        if cells is None:
            return
        if cells:
            yield start, reader.line_num, cells


def _sniff(lines: list[str], quoted: bool) -> str:
    """The delimiter of a .txt or .csv file: the one that gives most of the first lines as many cells, 3 if possible."""
    found, best = ",", (0.0, False)
    for delimiter in "\t,;| ":
        rows = csv.reader(lines, delimiter=delimiter) if quoted else (line.split(delimiter) for line in lines)
        try:
            widths = [len(row) for row in rows if row]
        except csv.Error:  # a cell beyond all measure; the reading that follows says where
            continue
        if widths and widths[0] >= 3:
            score = (widths.count(widths[0]) / len(widths), widths[0] == 3)
            if score > best:
                found, best = delimiter, score
    return found


def _is_header(cells: list[str], layout: Layout) -> bool:
    """A header is there when columns are picked by name, or when each role has a well-known column title."""
    if layout.columns and not all(c.isdecimal() for c in layout.columns):
        return True
    lower = [c.strip().lower() for c in cells]
    return all(any(cell in titles for cell in lower) for titles in _HEADERS) and len(set(lower)) == len(lower)


def _pick(where: str, layout: Layout, titles: list[str] | None, width: int) -> list[int]:
    """Positions of head, relation and tail in a row."""
    titles = None if titles is None else [_one_line(title) for title in titles]
    if layout.columns is None:
        lower = [t.lower() for t in titles or ()]
        found = [next((lower.index(name) for name in names if name in lower), -1) for names in _HEADERS]
        if min(found) >= 0:
            return found
        if width != 3:
            raise GraphError(f"{where}: {_count(width)}, expected 3 ({', '.join(ROLES)}){_pick_hint(width)}")
        return [0, 1, 2]
    if len(layout.columns) != 3:
        raise GraphError(f"--columns {','.join(layout.columns)}: three columns expected, head,relation,tail")
    positions: list[int] = []
    for role, column in zip(ROLES, map(_one_line, layout.columns), strict=True):
        if titles is not None and titles.count(column) == 1:
            positions.append(titles.index(column))
        elif titles is not None and column in titles:
            raise GraphError(f"{where}: two columns are named '{column}'; pick by number, e.g. --columns 1,2,3")
        elif column.isdecimal() and 1 <= int(column) <= width:
            positions.append(int(column) - 1)
        elif column.isdecimal():
            raise GraphError(f"{where}: column {column} asked for as {role}, but the file has {_count(width)}")
        else:
            there = f"; the header has: {', '.join(titles)}" if titles else "; without a header, pick by number"
            raise GraphError(f"{where}: no column '{column}' for {role}{suggest(column, titles or [])}{there}")
    if len(set(positions)) != 3:
        raise GraphError(f"{where}: --columns {','.join(layout.columns)} picks a column twice")
    return positions


def _count(width: int) -> str:
    return f"{width} column{'' if width == 1 else 's'}"


def _pick_hint(width: int) -> str:
    return "; pick them with --columns, e.g. --columns 1,2,3" if width > 3 else ""


def _has_empty(column: pa.ChunkedArray) -> bool:
    """Whether a name of nothing but white space occurs: looked up in the dictionaries, not in the rows."""
    return any(pc.min(pc.binary_length(pc.utf8_trim_whitespace(c.dictionary))).as_py() == 0 for c in column.chunks)


def _has_line_break(column: pa.ChunkedArray) -> bool:
    return any(pc.any(pc.match_substring(c.dictionary, "\n")).as_py() for c in column.chunks)


# --- Parquet --------------------------------------------------------------------------------------------------------


def _read_parquet(path: Path, compression: str | None, layout: Layout) -> TripleColumns:
    try:
        if compression:
            with pa.input_stream(str(path), compression=compression) as stream:
                file = pq.ParquetFile(pa.BufferReader(stream.read()))
        else:
            file = pq.ParquetFile(path)
        titles = list(file.schema_arrow.names)
        picked = [titles[i] for i in _pick(str(path), layout, titles, len(titles))]
        if twice := [title for title in picked if titles.count(title) > 1]:
            raise GraphError(f"{path}: two columns are named '{twice[0]}'; give each its own name")
        table = file.read(columns=picked)
        return TripleColumns(*(_names(path, role, t, table[t]) for role, t in zip(ROLES, picked, strict=True)))
    except pa.ArrowException as error:
        raise GraphError(f"{path}: not a readable Parquet file: {_one_line(error)}") from error


def _names(path: Path, role: str, title: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A Parquet column as names: text as it is, whole numbers written out, anything else refused."""
    value = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise GraphError(f"{path}: row {row + 1}: the {role} ('{title}') is null")
    if not any(is_type(value) for is_type in _NAME_TYPES):
        raise GraphError(f"{path}: column '{title}' holds {_one_line(column.type)}, not names")
    column = pa.chunked_array([c.cast(pa.string()).dictionary_encode() for c in column.chunks], _NAMES)
    if _has_empty(column):
        empty = pc.equal(pc.utf8_trim_whitespace(column.cast(pa.string())), "")
        raise GraphError(f"{path}: row {pc.index(empty, True).as_py() + 1}: the {role} ('{title}') is empty")
    return column
