"""The registry of file formats: what a format declares, what its function is called with, and what it returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pairre.graph.streams import COMPRESSIONS, open_stream, read_lines, split_ending
from pairre.support.errors import GraphError
from pairre.support.reading import file_fault, shortened, shown

MEMBERS = ("head", "relation", "tail")
NO_WEIGHTS = "none"  # what `Layout.weights` says to leave a column titled `weight` alone
NAMES = pa.dictionary(pa.int32(), pa.string())  # the type of every column of names
_ENDING = re.compile(r"\.[^.A-Z]+")
_CHUNK = 1 << 20  # rows that are encoded at once


HeaderQuestion = Callable[[str], bool]  # gets a sentence about a doubtful first row; returns whether it is a header


@dataclass(frozen=True)
class Layout:
    """What the user said about how to read files; a value of None is detected from the file."""

    columns: tuple[str, ...] | None = None  # titles of head, relation and tail, or their numbers from 1
    header: bool | HeaderQuestion | None = None
    delimiter: str | None = None
    language: str = "en"  # of labels in RDF; other languages, and none, are taken where it is missing
    keep_blank: bool = False  # keep blank nodes and lists of RDF
    only: tuple[str, ...] = ()  # relations to read, as people type them; all if empty
    exclude: tuple[str, ...] = ()  # relations not to read
    weights: str | None = None  # title or number; without it a column `weight` is found, unless this is "none"


@dataclass(frozen=True)
class TripleFile:
    """The file that a format is to read."""

    path: Path
    layout: Layout = Layout()

    @property
    def ending(self) -> str:
        """The lower-case ending without that of a compression, such as `.csv`."""
        return split_ending(self.path)[0]

    @property
    def compressed(self) -> bool:
        """Whether the file is compressed; `open` and `lines` decompress it."""
        return split_ending(self.path)[1] is not None

    def open(self) -> pa.NativeFile:
        """Return a binary stream of the decompressed contents."""
        return open_stream(self.path)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (number from 1, text with its line break) of each line of a UTF-8 file that is not empty."""
        return read_lines(self.path)

    def columns(self, rows: Iterable[tuple[str, str, str]]) -> TripleColumns:
        """Return rows of head, relation and tail as encoded columns; a GraphError names a row with an empty name."""
        return encode_rows(str(self.path), rows)


@dataclass(frozen=True)
class TripleColumns:
    """The triples of one file or object as three dictionary-encoded columns of names."""

    head: pa.ChunkedArray
    relation: pa.ChunkedArray
    tail: pa.ChunkedArray
    skipped: Mapping[str, int] = field(default_factory=dict)  # "literals" → how many triples were not read
    prefixes: Mapping[str, str] = field(default_factory=dict)  # of CURIEs
    labels: pa.Table | None = None  # of names; rows of name, label and rank, of which the lowest is the best
    types: tuple[pa.Array, pa.Array] | None = None  # entities and a type of each, that are no triples
    weight: np.ndarray | None = None  # [N] float32, finite and not negative
    header_undecided: bool = False  # whether nobody said and no title showed that the first row is or is not a header


Reader = Callable[[TripleFile], TripleColumns]


@dataclass(frozen=True)
class FileFormat:
    """One file format: the endings it is recognised by, a line of help, and the function that reads it."""

    endings: tuple[str, ...]
    help: str
    read: Reader


_BY_ENDING: dict[str, FileFormat] = {}


def register(*endings: str, help: str) -> Callable[[Reader], Reader]:
    """Return a decorator that makes a function the reader of all files with these endings.

    An ending is lower case and has one dot. One that is registered already is taken over by the new format.

    Example:
        @register(".arrows", help="lines of `head -relation-> tail`")
        def read_arrows(file: TripleFile) -> TripleColumns: ...
    """
    for ending in endings:
        if (
            len(ending) < 2
            or ending != f".{ending.strip('.').lower()}"
            or ending.count(".") != 1
            or ending in COMPRESSIONS
        ):
            raise ValueError(f"{ending!r}: an ending such as '.tsv' expected: one dot, lower case, no compression")

    def decorate(read: Reader) -> Reader:
        _BY_ENDING.update(dict.fromkeys(endings, FileFormat(endings, help, read)))
        return read

    return decorate


def formats() -> tuple[FileFormat, ...]:
    """Return all formats, in the order in which they were registered."""
    return tuple(dict.fromkeys(_BY_ENDING.values()))


def endings() -> tuple[str, ...]:
    """Return the endings of all formats, without those of compressions."""
    return tuple(_BY_ENDING)


def endings_help() -> str:
    """Return the endings as a phrase for help texts: `.tsv .txt .csv …, each also .gz or .zst`."""
    return f"{' '.join(endings())}, each also {' or '.join(COMPRESSIONS)}"


def read_triples(path: Path, layout: Layout | None = None) -> TripleColumns:
    """Return the triples of a file, read by the format of its ending; every fault is a GraphError of one line."""
    file = TripleFile(path, layout or Layout())
    file_format = _BY_ENDING.get(file.ending)
    if file_format is None:
        known = f"{', '.join(endings())}, each also {' or '.join(COMPRESSIONS)}"
        raise GraphError(f"{shown(path)}: unknown ending '{shown(file.ending or path.name)}'; known endings: {known}")
    if fault := file_fault(path):
        raise GraphError(f"{shown(path)}: {fault}")
    try:
        columns = file_format.read(file)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(columns.head) == 0:
        numbers = ", ".join(f"{number:,} {what}" for what, number in columns.skipped.items())
        skipped = f" ({numbers} skipped)" if numbers else ""
        raise GraphError(f"{path}: no triples in this file{skipped}")
    if file.layout.weights not in (None, NO_WEIGHTS) and columns.weight is None:
        raise GraphError(f"{path}: --weights {file.layout.weights}: files of this format have no column of weights")
    return columns


def encode_rows(where: str, rows: Iterable[tuple[str, str, str]]) -> TripleColumns:
    """Return rows of head, relation and tail as encoded columns; a GraphError names a row with an empty name."""
    chunks: list[list[pa.Array]] = [[], [], []]
    remaining, num_rows = iter(rows), 0
    while block := list(islice(remaining, _CHUNK)):
        for position, member in enumerate(MEMBERS):
            chunk = pa.array([row[position] for row in block], pa.string()).dictionary_encode()
            if has_empty_name(chunk):
                row = next(i for i, names in enumerate(block, start=num_rows + 1) if not names[position].strip())
                raise GraphError(f"{where}: triple {row}: the {member} is empty")
            chunks[position].append(chunk)
        num_rows += len(block)
    return TripleColumns(*(pa.chunked_array(column, NAMES) for column in chunks))


def has_empty_name(column: pa.ChunkedArray | pa.DictionaryArray) -> bool:
    """Return whether an encoded column has a name of white space only; looks at dictionaries, not at rows."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return any(pc.min(pc.binary_length(pc.utf8_trim_whitespace(c.dictionary))).as_py() == 0 for c in chunks)


def one_line(text: object) -> str:
    """Return a text without line breaks, as error messages need it."""
    return " ".join(str(text).split())


def unreadable(path: Path, error: OSError) -> GraphError:
    """Return what a failed read means for a file of triples; Arrow's errors carry no errno."""
    return GraphError(f"{path}: cannot be read: {_reason(error)}")


def _reason(error: OSError) -> str:
    text = shortened(one_line(error.strerror or error), 300)
    if "Truncated compressed stream" in text:
        return "the compressed file is cut off; fetch or write it again"
    if "inflate failed" in text or "ZSTD" in text:
        return f"it is not what its ending says, or damaged ({text})"
    return text
