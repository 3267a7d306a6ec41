"""Tables: data frames of pandas, Polars and pyarrow, and whatever else narwhals or Arrow's stream interface reads."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pairre.graph.formats import Layout, TripleColumns
from pairre.graph.formats.arrow import encode_columns
from pairre.graph.formats.columns import find_columns
from pairre.graph.formats.registry import one_line
from pairre.graph.sources.registry import register
from pairre.support.errors import GraphError


def _as_frame(source: Any) -> Any:
    """Return an object as a narwhals frame, or as it is if it is none."""
    import narwhals

    try:
        return narwhals.from_native(source, pass_through=True)
    except ValueError as error:  # two columns of one name
        raise GraphError(f"table: {one_line(error)}") from error


def _is_table(source: Any) -> bool:
    return hasattr(source, "__arrow_c_stream__") or hasattr(_as_frame(source), "collect_schema")


@register(_is_table, help="a table of pandas, Polars or pyarrow")
def read_table(source: Any, layout: Layout) -> TripleColumns:
    """Return the triples of a table; only the chosen columns are converted."""
    frame = _as_frame(source)
    if hasattr(frame, "collect"):  # a query that has not run yet
        frame = frame.collect()
    if not hasattr(frame, "collect_schema"):
        frame = _as_frame(pa.table(source))
    titles = [str(title) for title in frame.columns]
    positions = find_columns("table", layout, titles, len(titles))
    if not len(frame):
        raise GraphError("table: no triples in this object, which has no rows")
    try:
        columns = [_column(frame, position) for position in positions]
        chunked = [c if isinstance(c, pa.ChunkedArray) else pa.chunked_array([c]) for c in columns]
        return encode_columns("table", [titles[position] for position in positions], chunked)
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise GraphError(f"table: a column cannot be read as names: {one_line(error)}") from error


def _column(frame: Any, position: int) -> Any:
    """Return a column as an Arrow array; without its title, because Polars ends in a panic if that has a NUL."""
    return frame[:, position].alias("").to_arrow()
