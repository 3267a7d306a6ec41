"""Triples as Python has them: lists, sets and iterators of (head, relation, tail) or (head, relation, tail, weight)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from operator import index
from typing import Any

import numpy as np

from pairre.graph.formats import Layout, TripleColumns
from pairre.graph.formats.columns import find_columns
from pairre.graph.formats.registry import MEMBERS, encode_rows
from pairre.graph.sources.registry import register, with_weights
from pairre.support.errors import GraphError
from pairre.support.reading import shortened

_EXPECTED = "(head, relation, tail) or (head, relation, tail, weight) expected"


@register(
    lambda source: isinstance(source, list | tuple | set | frozenset | Iterator),
    help="a list of triples (head, relation, tail)",
)
def read_list(source: Iterable[Any], layout: Layout) -> TripleColumns:
    """Return the triples of an iterable; a fourth member of its rows is the weight unless columns are chosen."""
    rows = iter(source)
    first = next(rows, None)
    if first is None:
        raise GraphError("no triples in this object")
    width = len(_members(1, first))
    if width == 4 and layout.columns is None and layout.weights is None:
        layout = replace(layout, weights="4")
    positions = find_columns("list of triples", layout, None, width)
    return encode_weighted("list of triples", _rows(chain([first], rows), positions, width), len(positions) > 3)


def encode_weighted(where: str, rows: Iterable[tuple[Any, ...]], weighted: bool) -> TripleColumns:
    """Return rows of head, relation, tail and, if `weighted`, weight as columns; names are texts or whole numbers."""
    weights = array("d")

    def names() -> Iterator[tuple[str, str, str]]:
        for number, row in enumerate(rows, start=1):
            head, relation, tail = (_name(where, number, *pair) for pair in zip(MEMBERS, row[:3], strict=True))
            if weighted:
                weights.append(_number(where, number, row[3]))
            yield head, relation, tail

    columns = encode_rows(where, names())
    return with_weights(columns, np.frombuffer(weights) if len(weights) else np.empty(0)) if weighted else columns


def _rows(source: Iterable[Any], positions: list[int], width: int) -> Iterator[tuple[Any, ...]]:
    for number, row in enumerate(source, start=1):
        if len(members := _members(number, row)) != width:
            raise GraphError(f"list of triples: triple {number} has {len(members)} members, the first has {width}")
        yield tuple(members[position] for position in positions)


def _members(number: int, row: Any) -> tuple[Any, ...]:
    if not isinstance(row, tuple | list | np.ndarray):
        raise GraphError(f"list of triples: triple {number} is {shortened(repr(row), 50)}; {_EXPECTED}")
    return tuple(row)


def _name(where: str, number: int, member: str, value: Any) -> str:
    """Return a text as it is and a whole number as a decimal; anything else is a GraphError."""
    if isinstance(value, str):
        return str(value)
    try:
        if not isinstance(value, bool | np.bool_):
            return str(index(value))
    except TypeError:
        pass
    shown = shortened(repr(value), 50)
    raise GraphError(f"{where}: triple {number}: the {member} is {shown}; a text or a whole number expected")


def _number(where: str, number: int, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        shown = shortened(repr(value), 50)
        raise GraphError(f"{where}: triple {number}: the weight is {shown}; a number expected") from None
