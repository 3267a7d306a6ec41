"""Files of triples → Arrow columns: formats by suffix, headers, columns, and errors that name file and line.

The fast path is Arrow's own parser. Only when it refuses a file, or an empty name turns up, is the file read again
line by line to say exactly where the fault is.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from pairre.errors import GraphError, suggest
from pairre.graph.rdf import RDF_SUFFIXES, read_rdf

DELIMITED = {".tsv": "\t", ".txt": None, ".csv": None}  # None: found out from the first line
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
SUFFIXES = (*DELIMITED, ".parquet", *RDF_SUFFIXES)
ROLES = ("head", "relation", "tail")
_NAMES = pa.dictionary(pa.int32(), pa.string())
_HEADERS = (
    {"head", "h", "subject", "subj", "s", "source", "src", "from", "start", "head_id", "subject_id"},
    {"relation", "rel", "r", "predicate", "pred", "p", "property", "edge", "type", "label", "relation_id"},
    {"tail", "t", "object", "obj", "o", "target", "dst", "to", "end", "tail_id", "object_id"},
)
_BLOCK = 16 << 20


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
        raise GraphError(f"{path}: no such file")
    try:
        if suffix in RDF_SUFFIXES:
            with pa.input_stream(str(path), compression=compression) as stream:
                head, relation, tail, num_literals = read_rdf(path, stream, RDF_SUFFIXES[suffix])
            columns = TripleColumns(*(_chunked(c) for c in (head, relation, tail)), num_literals)
        elif suffix == ".parquet":
            columns = _read_parquet(path, compression, layout)
        else:
            columns = _read_delimited(path, compression, layout, DELIMITED[suffix])
    except OSError as error:
        raise GraphError(f"{path}: cannot be read: {_why(error)}") from error
    if len(columns.head) == 0:
        what = f" ({columns.num_literals:,} literals skipped)" if columns.num_literals else ""
        raise GraphError(f"{path}: no triples in this file{what}")
    return columns


def _why(error: OSError) -> str:
    """Arrow's errors carry no errno; say what they mean for a file of triples."""
    text = error.strerror or str(error)
    if "Truncated compressed stream" in text:
        return "the compressed file is cut off; fetch or write it again"
    if "inflate failed" in text or "ZSTD" in text:
        return f"it is not what its suffix says, or damaged ({text})"
    return text


def _chunked(column: list[pa.Array]) -> pa.ChunkedArray:
    return pa.chunked_array(column, _NAMES)


# --- delimited text -------------------------------------------------------------------------------------------------


def _read_delimited(path: Path, compression: str | None, layout: Layout, delimiter: str | None) -> TripleColumns:
    number, first = _first_line(path, compression)
    delimiter = layout.delimiter or delimiter or _sniff(first)
    quoted = split_suffix(path)[0] == ".csv"
    cells = next(csv.reader([first], delimiter=delimiter)) if quoted else first.split(delimiter)
    header = layout.header if layout.header is not None else _is_header(cells, layout)
    picked = _pick(path, layout, cells if header else None, len(cells))
    skip = number if header else 0  # lines before the first triple
    wanted = [f"c{i}" for i in picked]
    try:
        table = arrow_csv.read_csv(
            pa.input_stream(str(path), compression=compression),
            read_options=arrow_csv.ReadOptions(
                column_names=[f"c{i}" for i in range(len(cells))], skip_rows=skip, block_size=_BLOCK
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, quote_char='"' if quoted else False, newlines_in_values=quoted
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, _NAMES), include_columns=wanted, strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise _fault(path, compression, delimiter, quoted, skip, picked, len(cells)) or GraphError(
            f"{path}: {error}"
        ) from error
    columns = TripleColumns(*(table[name] for name in wanted))
    if any(_has_empty(column) for column in (columns.head, columns.relation, columns.tail)):
        fault = _fault(path, compression, delimiter, quoted, skip, picked, len(cells))
        raise fault or GraphError(f"{path}: a name is empty")
    return columns


def _first_line(path: Path, compression: str | None) -> tuple[int, str]:
    """Number and text of the first line that is not empty: enough to find out delimiter, header and width."""
    for number, line in _lines(path, compression, quoted=False):
        if line.strip(b"\r\n"):
            return number, _decode(path, number, line).rstrip("\r\n")
    raise GraphError(f"{path}: the file is empty")


def _sniff(line: str) -> str:
    """The delimiter of a .txt or .csv file: the first of tab, comma, semicolon, bar or space that occurs twice."""
    return next((d for d in "\t,;| " if line.count(d) >= 2), "\t" if "\t" in line else ",")


def _is_header(cells: list[str], layout: Layout) -> bool:
    """A header is there when columns are picked by name, or when two cells or more are well-known column titles."""
    if layout.columns and not all(c.isdigit() for c in layout.columns):
        return True
    lower = [c.strip().lower() for c in cells]
    return sum(any(cell in titles for cell in lower) for titles in _HEADERS) >= 2 and len(set(lower)) == len(lower)


def _pick(path: Path, layout: Layout, titles: list[str] | None, width: int) -> list[int]:
    """Positions of head, relation and tail in a row."""
    if layout.columns is None:
        if titles is not None and width >= 3:
            lower = [t.strip().lower() for t in titles]
            found = [next((i for i, t in enumerate(lower) if t in names), None) for names in _HEADERS]
            positions = [i for i in found if i is not None]
            if len(positions) == 3 and len(set(positions)) == 3:
                return positions
        if width != 3:
            raise GraphError(f"{path}:1: {_count_columns(width)}, expected 3 ({', '.join(ROLES)}){_pick_hint(width)}")
        return [0, 1, 2]
    positions = []
    for role, column in zip(ROLES, layout.columns, strict=True):
        if titles is not None and column in titles:
            positions.append(titles.index(column))
        elif column.isdigit() and 1 <= int(column) <= width:
            positions.append(int(column) - 1)
        elif column.isdigit():
            raise GraphError(f"{path}:1: column {column} asked for as {role}, but the file has {_count_columns(width)}")
        else:
            there = f"; the header has: {', '.join(titles)}" if titles else ""
            raise GraphError(f"{path}:1: no column '{column}' for {role}{suggest(column, titles or [])}{there}")
    return positions


def _count_columns(width: int) -> str:
    return f"{width} column{'' if width == 1 else 's'}"


def _pick_hint(width: int) -> str:
    return "; pick them with --columns, e.g. --columns 1,2,3" if width > 3 else ""


def _has_empty(column: pa.ChunkedArray) -> bool:
    """Whether a name of nothing but white space occurs: looked up in the dictionaries, not in the rows."""
    return any(pc.any(pc.equal(pc.utf8_trim_whitespace(c.dictionary), "")).as_py() for c in column.chunks)


# --- where the fault is ---------------------------------------------------------------------------------------------


def _fault(
    path: Path, compression: str | None, delimiter: str, quoted: bool, skip: int, picked: list[int], width: int
) -> GraphError | None:
    """Read the file again, slowly, and name the first line that is wrong."""
    for number, line in _lines(path, compression, quoted):
        text = _decode(path, number, line).rstrip("\r\n")
        if not text or number <= skip:
            continue
        cells = (
            next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)) if quoted else text.split(delimiter)
        )
        if len(cells) != width:
            roles = f" ({', '.join(ROLES)})" if width == 3 else ""
            return GraphError(f"{path}:{number}: {_count_columns(len(cells))}, expected {width}{roles}")
        for role, position in zip(ROLES, picked, strict=True):
            if not cells[position].strip():
                return GraphError(f"{path}:{number}: the {role} is empty")
    return None


def _lines(path: Path, compression: str | None, quoted: bool) -> Iterator[tuple[int, bytes]]:
    """(number of its first line, bytes) of each record; in quoted files a record may run over several lines."""
    with pa.input_stream(str(path), compression=compression) as stream:
        record, start = b"", 1
        for number, line in enumerate(io.BufferedReader(stream), start=1):  # type: ignore[type-var]
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            record += line
            if quoted and record.count(b'"') % 2:
                continue
            yield start, record
            record, start = b"", number + 1
        if record:
            yield start, record


def _decode(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = line[error.start]
        raise GraphError(f"{path}:{number}: invalid UTF-8 (byte 0x{byte:02x} at column {error.start + 1})") from error


# --- Parquet --------------------------------------------------------------------------------------------------------


def _read_parquet(path: Path, compression: str | None, layout: Layout) -> TripleColumns:
    try:
        if compression:
            with pa.input_stream(str(path), compression=compression) as stream:
                file = pq.ParquetFile(pa.BufferReader(stream.read()))
        else:
            file = pq.ParquetFile(path)
        titles = list(file.schema_arrow.names)
        picked = [titles[i] for i in _pick(path, layout, titles, len(titles))]
        table = file.read(columns=picked)
    except pa.ArrowInvalid as error:
        raise GraphError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from error
    columns = []
    for role, title in zip(ROLES, picked, strict=True):
        column = table[title]
        if column.null_count:
            row = pc.index(pc.is_null(column), True).as_py()
            raise GraphError(f"{path}: row {row + 1}: the {role} ('{title}') is null")
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            value = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            if pa.types.is_nested(value) or pa.types.is_floating(value):
                raise GraphError(f"{path}: column '{title}' holds {column.type}, not names")
        column = pa.chunked_array([c.cast(pa.string()).dictionary_encode() for c in column.chunks], _NAMES)
        if _has_empty(column):
            empty = pc.equal(pc.utf8_trim_whitespace(column.cast(pa.string())), "")
            raise GraphError(f"{path}: row {pc.index(empty, True).as_py() + 1}: the {role} ('{title}') is empty")
        columns.append(column)
    return TripleColumns(*columns)
