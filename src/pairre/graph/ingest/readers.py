"""How DuckDB reads a file of each format as head, relation and tail, and how the row of a fault is found in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairre.graph.formats.arrow import is_text
from pairre.graph.formats.columns import find_columns
from pairre.graph.formats.delimited import TextTable
from pairre.graph.formats.rdf_terms import BLANK_NODES, LISTS, LITERALS
from pairre.graph.formats.registry import MEMBERS, TripleFile, one_line
from pairre.graph.streams import read_lines, split_ending
from pairre.support.errors import GraphError
from pairre.support.reading import shortened
from pairre.support.table_files import PARQUET_FAULTS

LABELS, FAULTS = "labels", "faulty lines"
_NO_DELIMITER = "\x01\x02\x03\x04"  # a line with it is split, which no text of triples has


@dataclass(frozen=True)
class Reading:
    """Files that are read by one query."""

    files: tuple[Path, ...]
    how: object  # equal for files that can be read by one query
    select: str  # the query, with `{files}` where the list of files goes
    find_fault: Callable[[Path], GraphError | None]
    skips: bool = False  # whether some rows may be no triples
    first_rows: tuple[tuple[Path, Sequence[str]], ...] = ()  # that may be headers

    @property
    def sql(self) -> str:
        """The query of the columns head, relation, tail and skipped."""
        return self.select.replace("{files}", "[" + ", ".join(quoted(str(file)) for file in self.files) + "]")


@dataclass(frozen=True)
class Reader:
    """The reader of one format."""

    detect: Callable[[TripleFile], Reading]
    can_be_compressed: bool = True


def quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _csv(delimiter: str, quote: str, skip: int, width: int, compression: str | None) -> str:
    """Return a call of DuckDB's reader in which nothing is left to be detected."""
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(width))
    return (
        f"read_csv({{files}}, delim={quoted(delimiter)}, quote={quoted(quote)}, escape={quoted(quote)}, header=false, "
        f"skip={skip}, auto_detect=false, compression={quoted(compression or 'none')}, columns={{{columns}}})"
    )


def _detect_text(file: TripleFile) -> Reading:
    table = TextTable.detect(file)
    if len(table.positions) > 3:
        raise GraphError(
            f"{file.path}: has a column of weights, and graphs on disk have none; --weights none leaves it out"
        )
    compression = split_ending(file.path)[1]
    how = (table.delimiter, '"' if table.quoted else "", table.num_skipped, table.width, compression)
    columns = ", ".join(f"c{i} AS {member}" for i, member in zip(table.positions, MEMBERS, strict=True))
    rows = ((file.path, table.first_row),) if table.first_row else ()
    return Reading(
        (file.path,),
        (*how, *table.positions),
        f"SELECT {columns}, NULL AS skipped FROM {_csv(*how)}",
        lambda path: TextTable.detect(TripleFile(path, file.layout)).find_fault(),
        first_rows=rows,
    )


def _detect_parquet(file: TripleFile) -> Reading:
    path = file.path
    try:
        schema = pq.read_schema(path)
    except PARQUET_FAULTS as error:
        raise GraphError(f"{path}: not a readable Parquet file: {one_line(error)}") from error
    titles = list(schema.names)
    positions = find_columns(str(path), file.layout, titles, len(titles))
    if len(positions) > 3:
        raise GraphError(f"{path}: has a column of weights, and graphs on disk have none; --weights none leaves it out")
    chosen = [titles[position] for position in positions]
    for title in chosen:
        if titles.count(title) > 1:
            raise GraphError(f"{path}: two columns are named '{title}'; give each its own name")
        kind = schema.field(title).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not is_text(kind) and not pa.types.is_integer(kind):
            raise GraphError(f"{path}: column '{title}' holds {one_line(kind)}, not names")
    columns = ", ".join(
        f'CAST("{title.replace(chr(34), 2 * chr(34))}" AS VARCHAR) AS {member}'
        for title, member in zip(chosen, MEMBERS, strict=True)
    )
    select = f"SELECT {columns}, NULL AS skipped FROM read_parquet({{files}})"
    return Reading((path,), ("parquet", *chosen), select, lambda path: _parquet_fault(path, chosen))


def _parquet_fault(path: Path, titles: Sequence[str]) -> GraphError | None:
    """Return an error that names the first row without a name, or None."""
    first = 0
    for batch in pq.ParquetFile(path).iter_batches(columns=list(titles)):
        for member, title in zip(MEMBERS, titles, strict=True):
            for row, name in enumerate(batch.column(title).to_pylist()):
                if name is None or not str(name).strip():
                    fault = "null" if name is None else "empty"
                    return GraphError(f"{path}: row {first + row + 1}: the {member} ('{title}') is {fault}")
        first += batch.num_rows
    return None


# --- N-Triples: one line is one triple, so that lines can be taken apart by patterns ---

_IRI = r"<[^<>\"{}|^`\x00-\x20]*>"
_BLANK = r"_:[^\s<>\"]*[^\s<>\".]"
_LITERAL = rf"\"(?:[^\"\\]|\\.)*\"(?:@[A-Za-z0-9-]+|\^\^{_IRI})?"
_LINE = rf"[ \t]*({_IRI}|{_BLANK})[ \t]*({_IRI})[ \t]*({_IRI}|{_BLANK}|{_LITERAL})[ \t]*\.[ \t]*(?:#.*)?"
_NOTHING = r"[ \t\r]*(?:#.*)?"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_LABEL_RELATIONS = ("http://www.w3.org/2000/01/rdf-schema#label", "http://www.w3.org/2004/02/skos/core#prefLabel")


def _detect_ntriples(file: TripleFile) -> Reading:
    compression = split_ending(file.path)[1]
    lines = _csv(_NO_DELIMITER, "", 0, 1, compression)
    labels = ", ".join(f"'<{relation}>'" for relation in _LABEL_RELATIONS)
    blank = (
        ""
        if file.layout.keep_blank
        else (
            f"WHEN term.r IN ('<{_RDF}first>', '<{_RDF}rest>') THEN '{LISTS}' "
            f"WHEN term.h[1] = '_' OR term.t[1] = '_' THEN '{BLANK_NODES}' "
        )
    )
    select = (
        f"SELECT name_of(term.h) AS head, name_of(term.r) AS relation, name_of(term.t) AS tail, CASE "
        f"WHEN term.r = '' THEN '{FAULTS}' "
        f"WHEN term.t[1] = '\"' THEN CASE WHEN term.r IN ({labels}) THEN '{LABELS}' ELSE '{LITERALS}' END "
        f"{blank}END AS skipped FROM (SELECT regexp_extract(c0, {quoted(f'^{_LINE}$')}, ['h', 'r', 't']) AS term "
        f"FROM {lines} WHERE NOT regexp_full_match(c0, {quoted(_NOTHING)}))"
    )
    return Reading((file.path,), ("nt", compression, file.layout.keep_blank), select, _ntriples_fault, skips=True)


def _ntriples_fault(path: Path) -> GraphError | None:
    """Return an error that names the first line that is no triple, or None."""
    line, nothing = re.compile(_LINE), re.compile(_NOTHING)
    for number, text in read_lines(path):
        text = text.rstrip("\r\n")
        if not line.fullmatch(text) and not nothing.fullmatch(text):
            return GraphError(f"{path}:{number}: not a triple of N-Triples: {shortened(text.strip())}")
    return None


def unescaped(text: str) -> str:
    r"""Return a text with its escapes `\uXXXX` and `\UXXXXXXXX` replaced by the characters that they stand for."""
    return re.sub(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})", lambda found: chr(int(found[1] or found[2], 16)), text)


# What `name_of` is in DuckDB: a term without angle brackets; `unescaped` is called for terms with escapes only.
NAME_OF = r"""CREATE MACRO name_of(term) AS (
    CASE WHEN contains(term, '\') THEN unescaped(term[2:-2]) WHEN term[1] = '<' THEN term[2:-2] ELSE term END
)"""

READERS = {
    **dict.fromkeys((".tsv", ".txt", ".csv"), Reader(_detect_text)),
    ".parquet": Reader(_detect_parquet, can_be_compressed=False),
    ".nt": Reader(_detect_ntriples),
}
