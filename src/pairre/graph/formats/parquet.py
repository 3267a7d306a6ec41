"""Parquet: three columns of text or whole numbers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pairre.graph.formats.columns import find_columns
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

_NAME_TYPES = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_integer),
)


@register(".parquet", help="Parquet with columns of text or whole numbers")
def read_parquet(file: TripleFile) -> TripleColumns:
    """Return the triples of a Parquet file; one that is compressed as a whole is read into memory first."""
    path = file.path
    try:
        if file.compressed:
            with file.open() as stream:
                parquet = pq.ParquetFile(pa.BufferReader(stream.read()))
        else:
            parquet = pq.ParquetFile(path)
        titles = list(parquet.schema_arrow.names)
        chosen = [titles[i] for i in find_columns(str(path), file.layout, titles, len(titles))]
        if repeated := [title for title in chosen if titles.count(title) > 1]:
            raise GraphError(f"{path}: two columns are named '{repeated[0]}'; give each its own name")
        table = parquet.read(columns=chosen)
        return TripleColumns(*(_names(path, member, t, table[t]) for member, t in zip(MEMBERS, chosen, strict=True)))
    except pa.ArrowException as error:
        raise GraphError(f"{path}: not a readable Parquet file: {one_line(error)}") from error


def _names(path: Path, member: str, title: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as encoded names: text as it is, whole numbers as decimals, and any other type is refused."""
    value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise GraphError(f"{path}: row {row + 1}: the {member} ('{title}') is null")
    if not any(is_type(value_type) for is_type in _NAME_TYPES):
        raise GraphError(f"{path}: column '{title}' holds {one_line(column.type)}, not names")
    column = pa.chunked_array([c.cast(pa.string()).dictionary_encode() for c in column.chunks], NAMES)
    if has_empty_name(column):
        empty = pc.equal(pc.utf8_trim_whitespace(column.cast(pa.string())), "")
        raise GraphError(f"{path}: row {pc.index(empty, True).as_py() + 1}: the {member} ('{title}') is empty")
    return column
