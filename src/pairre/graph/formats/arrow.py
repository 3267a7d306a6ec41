"""From columns of Arrow tables to encoded names and weights; an error names the row, counted from 1."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pairre.graph.formats.registry import MEMBERS, NAMES, TripleColumns, has_empty_name, one_line
from pairre.support.errors import GraphError

_TEXT_TYPES = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary),
)
_NAME_TYPES = (*_TEXT_TYPES, pa.types.is_integer)
_NUMBER_TYPES = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
WEIGHT_EXPECTED = "a finite number that is not negative expected"


def is_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is one of those of text."""
    return any(is_type(kind) for is_type in _TEXT_TYPES)


def encode_columns(where: str, titles: list[str], columns: list[pa.ChunkedArray]) -> TripleColumns:
    """Return columns of head, relation, tail and, if there is a fourth, weight, with what is wrong as a GraphError."""
    members = zip(MEMBERS, titles[:3], columns[:3], strict=True)
    head, relation, tail = (_names(where, member, title, column) for member, title, column in members)
    weight = _weights(where, titles[3], columns[3]) if columns[3:] else None
    return TripleColumns(head, relation, tail, weight=weight)


def to_weights(values: np.ndarray) -> tuple[np.ndarray, int | None]:
    """Return numbers as weights, float32 [N], and the position of the first that cannot be a weight."""
    with np.errstate(over="ignore"):
        weights = values.astype(np.float32)
    fit = np.isfinite(weights) & (weights >= 0)
    return weights, None if fit.all() else int(fit.argmin())


def _weights(where: str, title: str, column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of numbers as weights."""
    if not any(is_type(column.type) for is_type in _NUMBER_TYPES):
        raise GraphError(f"{where}: column '{title}' holds {one_line(column.type)}, not weights")
    weights, fault = to_weights(column.cast(pa.float64()).to_numpy())
    if fault is not None:
        raise GraphError(f"{where}: row {fault + 1}: the weight ('{title}') is {column[fault]}; {WEIGHT_EXPECTED}")
    return weights


def _names(where: str, member: str, title: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as encoded names: text as it is, whole numbers as decimals, and any other type is refused."""
    value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(is_type(value_type) for is_type in _NAME_TYPES) and not column.null_count:
        raise GraphError(f"{where}: column '{title}' holds {one_line(column.type)}, not names")
    if not column.null_count:
        column = pa.chunked_array([_encoded(chunk) for chunk in column.chunks], NAMES)
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise GraphError(f"{where}: row {row + 1}: the {member} ('{title}') is null")
    if has_empty_name(column):
        empty = pc.equal(pc.utf8_trim_whitespace(column.cast(pa.string())), "")
        raise GraphError(f"{where}: row {pc.index(empty, True).as_py() + 1}: the {member} ('{title}') is empty")
    return column


def _encoded(chunk: pa.Array) -> pa.DictionaryArray:
    """Return a chunk as names numbered in the order of first appearance, each once."""
    if not isinstance(chunk, pa.DictionaryArray):
        return chunk.cast(pa.string()).dictionary_encode()
    names = chunk.dictionary.cast(pa.string()).dictionary_encode()  # equal names get one number
    numbers = names.indices.take(chunk.indices).dictionary_encode()
    return pa.DictionaryArray.from_arrays(numbers.indices, names.dictionary.take(numbers.dictionary))
