"""The registry of objects that `load_graph` takes: how a kind is recognised, and what its function returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pairre.graph.formats import Layout, TripleColumns
from pairre.graph.formats.arrow import WEIGHT_EXPECTED, to_weights
from pairre.support.errors import GraphError

Reader = Callable[[Any, Layout], TripleColumns]


@dataclass(frozen=True)
class SourceKind:
    """One kind of object: what it is called, whether an object is one, and the function that reads it."""

    help: str
    matches: Callable[[Any], bool]
    read: Reader


_KINDS: list[SourceKind] = []


def register(matches: Callable[[Any], bool], help: str) -> Callable[[Reader], Reader]:
    """Return a decorator that makes a function the reader of all objects for which `matches` is true."""

    def decorate(read: Reader) -> Reader:
        _KINDS.append(SourceKind(help, matches, read))
        return read

    return decorate


def kinds() -> tuple[SourceKind, ...]:
    """Return all kinds of objects."""
    return tuple(_KINDS)


def read_source(source: Any, layout: Layout) -> TripleColumns:
    """Return the triples of an object; every fault is a GraphError of one line."""
    kind = next((kind for kind in _KINDS if kind.matches(source)), None)
    if kind is None:
        known = "; ".join(kind.help for kind in _KINDS)
        raise GraphError(f"a graph cannot be read from a {type(source).__name__}; what can: a path or a name; {known}")
    columns = kind.read(source, layout)
    if not len(columns.head):
        raise GraphError("no triples in this object")
    return columns


def with_weights(columns: TripleColumns, weights: Any) -> TripleColumns:
    """Return triples with a weight for each, or as they are if `weights` is None."""
    if weights is None:
        return columns
    try:
        values = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise GraphError(f"weights: a number for each triple expected ({error})") from error
    if values.shape != (len(columns.head),):
        raise GraphError(f"weights: a number for each of {len(columns.head):,} triples expected, not {values.shape}")
    checked, fault = to_weights(values)
    if fault is not None:
        raise GraphError(f"weights: triple {fault + 1}: the weight is {values[fault]}; {WEIGHT_EXPECTED}")
    return replace(columns, weight=checked)
