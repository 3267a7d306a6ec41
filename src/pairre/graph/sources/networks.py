"""NetworkX graphs: every edge of a DiGraph or MultiDiGraph is a triple, whose relation is one of its attributes.

An edge is read as a row with the columns `source`, its attributes, `key` in a multigraph, and `target`, as
`networkx.to_pandas_edgelist` names them, so that `columns` and `weights` choose attributes by their names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from pairre.graph.formats import Layout, TripleColumns
from pairre.graph.formats.columns import find_columns
from pairre.graph.sources.registry import register
from pairre.graph.sources.triples import encode_weighted
from pairre.support.errors import GraphError
from pairre.support.reading import shortened

log = logging.getLogger("pairre")
_NEEDED = ("is_directed", "is_multigraph", "edges", "nodes")


@register(lambda source: all(hasattr(source, name) for name in _NEEDED), help="a directed graph of NetworkX")
def read_network(source: Any, layout: Layout) -> TripleColumns:
    """Return the edges of a graph as triples; nodes without an edge are left out and counted."""
    if not source.is_directed():
        raise GraphError("NetworkX graph: it is undirected; graph.to_directed() has each edge in both directions")
    keyed = source.is_multigraph() and any(isinstance(key, str) for *_, key in source.edges(keys=True))
    titles: dict[str, None] = {}
    for _, _, attributes in source.edges(data=True):
        titles |= dict.fromkeys(map(str, attributes))
    names = list(dict.fromkeys(["source", *titles, *(["key"] if keyed else []), "target"]))
    if len(names) < 3:
        raise GraphError("NetworkX graph: its edges have no attribute for the relation, such as `relation`")
    chosen = [names[position] for position in find_columns("NetworkX graph", layout, names, len(names))]
    if num_alone := sum(not degree for _, degree in source.degree()):
        log.warning("NetworkX graph: %s nodes without an edge left out", f"{num_alone:,}")
    return encode_weighted("NetworkX graph", _rows(source, chosen, keyed), len(chosen) > 3)


def _rows(source: Any, chosen: list[str], keyed: bool) -> Iterator[tuple[Any, ...]]:
    for head, tail, *key, attributes in source.edges(data=True, **({"keys": True} if keyed else {})):
        row = {**attributes, **dict(zip(("key",), key, strict=False)), "source": head, "target": tail}
        if missing := [title for title in chosen if title not in row]:
            edge = shortened(f"{head!r} → {tail!r}")
            raise GraphError(f"NetworkX graph: the edge {edge} has no attribute '{missing[0]}'")
        yield tuple(row[title] for title in chosen)
