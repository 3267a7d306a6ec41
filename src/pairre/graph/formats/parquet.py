"""Parquet: three columns of text or whole numbers, and perhaps one of weights."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairre.graph.formats.arrow import encode_columns, is_text
from pairre.graph.formats.columns import find_columns
from pairre.graph.formats.registry import TripleColumns, TripleFile, one_line, register
from pairre.support.errors import GraphError

_ROWS_PER_BYTE = 2  # half a byte for a row, which is less than a triple takes that differs from all others
_MIN_LIMIT = 1 << 20  # rows that any file may have


@register(".parquet", help="Parquet with columns of text or whole numbers")
def read_parquet(file: TripleFile) -> TripleColumns:
    """Return the triples of a Parquet file; one that is compressed as a whole is read into memory first."""
    path = file.path
    try:
        source: Path | pa.Buffer = path
        if file.compressed:
            with file.open() as stream:
                source = pa.py_buffer(stream.read())
        metadata = pq.read_metadata(source)
        _check_size(path, metadata.num_rows, path.stat().st_size)
        schema = metadata.schema.to_arrow_schema()
        titles = list(schema.names)
        chosen = [titles[i] for i in find_columns(str(path), file.layout, titles, len(titles))]
        if repeated := [title for title in chosen if titles.count(title) > 1]:
            raise GraphError(f"{path}: two columns are named '{repeated[0]}'; give each its own name")
        # Text stays encoded, so that a name that is repeated a million times is in memory once.
        text = [title for title in chosen if is_text(schema.field(title).type)]
        table = pq.ParquetFile(source, metadata=metadata, read_dictionary=text).read(columns=chosen)
        return encode_columns(str(path), chosen, [table[title] for title in chosen])
    except (pa.ArrowException, UnicodeDecodeError) as error:  # the last one for titles that are no text
        raise GraphError(f"{path}: not a readable Parquet file: {one_line(error)}") from error


def _check_size(path: Path, num_rows: int, num_bytes: int) -> None:
    """Raise a GraphError if a file claims more rows than distinct triples fit into its bytes."""
    if num_rows > max(_MIN_LIMIT, _ROWS_PER_BYTE * num_bytes):
        raise GraphError(f"{path}: {num_rows:,} rows in {num_bytes:,} bytes, which no file of triples has")
