"""Which columns of a table hold head, relation, tail and weight: by the user's choice, by titles, or by order."""

from __future__ import annotations

import re

from pairre.graph.formats.registry import MEMBERS, NO_WEIGHTS, Layout, one_line
from pairre.support.errors import GraphError, suggest
from pairre.support.reading import shortened

# Well-known titles, the plainest first: it is preferred where a table has two for one member. Those with a colon are
# Neo4j's, node1 and node2 are KGTK's.
_TITLES = (
    (
        *("head", "h", "head_id", "subject", "subj", "s", "subject_id", "source", "src", "from", "start"),
        *(":start_id", "node1"),
    ),
    (
        *("relation", "rel", "r", "relation_id", "predicate", "pred", "p", "property", "edge", ":type", "type"),
        *("label", "key"),
    ),
    ("tail", "t", "tail_id", "object", "obj", "o", "object_id", "target", "dst", "to", "end", ":end_id", "node2"),
)
WEIGHT_TITLE = "weight"
_NEO4J = re.compile(r"(:(?:start_id|end_id|type))\b.*|(\w+):(?:int|long|float|double)")  # id spaces, types of values


def is_header(cells: list[str], layout: Layout) -> bool:
    """Return whether a first row is a header: columns are chosen by title, or all three have a well-known title."""
    if layout.columns and not all(column.isdecimal() for column in layout.columns):
        return True
    if layout.weights not in (None, NO_WEIGHTS) and not layout.weights.isdecimal():
        return True
    lower = [_plain(cell) for cell in cells]
    return all(any(cell in titles for cell in lower) for titles in _TITLES) and len(set(lower)) == len(lower)


def find_columns(where: str, layout: Layout, titles: list[str] | None, width: int) -> list[int]:
    """Return the positions of head, relation and tail, and of the weight if there is one, in a row of `width` cells.

    `titles` is the header, or None if the table has none; `where` is the place that a GraphError names.
    """
    titles = None if titles is None else [one_line(title) for title in titles]
    weight = _weight_column(where, layout, titles, width)
    if layout.columns is None:
        positions = _default_columns(where, titles or [], width, weight)
    else:
        positions = _chosen_columns(where, layout, titles, width)
    if weight in positions and layout.weights:
        raise GraphError(f"{where}: --weights {layout.weights} is the column of the {MEMBERS[positions.index(weight)]}")
    return positions if weight is None or weight in positions else [*positions, weight]


def _chosen_columns(where: str, layout: Layout, titles: list[str] | None, width: int) -> list[int]:
    assert layout.columns is not None
    if len(layout.columns) != 3:
        raise GraphError(f"--columns {','.join(layout.columns)}: three columns expected, head,relation,tail")
    positions = [
        _position(where, one_line(column), member, titles, width)
        for member, column in zip(MEMBERS, layout.columns, strict=True)
    ]
    if len(set(positions)) != 3:
        raise GraphError(f"{where}: --columns {','.join(layout.columns)} picks a column twice")
    return positions


def count_columns(width: int) -> str:
    """Return "1 column", "2 columns" and so on."""
    return f"{width} column{'' if width == 1 else 's'}"


def _weight_column(where: str, layout: Layout, titles: list[str] | None, width: int) -> int | None:
    """Return the position of the weight: as chosen, or that of the one column titled `weight`."""
    if layout.weights == NO_WEIGHTS:
        return None
    if layout.weights is not None:
        return _position(where, one_line(layout.weights), "weight", titles, width)
    plain = [_plain(title) for title in titles or ()]
    return plain.index(WEIGHT_TITLE) if plain.count(WEIGHT_TITLE) == 1 else None


def _default_columns(where: str, titles: list[str], width: int, weight: int | None) -> list[int]:
    plain = [_plain(title) for title in titles]
    found = [next((plain.index(name) for name in names if name in plain), -1) for names in _TITLES]
    if min(found) >= 0:
        return found
    others = [position for position in range(width) if position != weight]
    if len(others) != 3:
        hint = "; pick them with --columns, e.g. --columns 1,2,3" if width > 3 else ""
        beside = " beside the weight" if len(others) < width else ""
        raise GraphError(f"{where}: {count_columns(len(others))}{beside}, expected 3 ({', '.join(MEMBERS)}){hint}")
    return others


def _plain(title: str) -> str:
    """Return a title in lower case, without the id space or the type that Neo4j writes after it."""
    lower = title.strip().lower()
    neo4j = _NEO4J.fullmatch(lower)
    return (neo4j[1] or neo4j[2]) if neo4j else lower


def _position(where: str, column: str, member: str, titles: list[str] | None, width: int) -> int:
    """Return the position of one column that was chosen by title or by number; a title wins over a number."""
    if titles is not None and titles.count(column) == 1:
        return titles.index(column)
    if titles is not None and column in titles:
        raise GraphError(f"{where}: two columns are named '{column}'; pick by number, e.g. --columns 1,2,3")
    number = column.lstrip("0") if column.isdecimal() and column.isascii() else ""
    if number and len(number) <= len(str(width)) and int(number) <= width:
        return int(number) - 1
    if column.isdecimal():
        raise GraphError(
            f"{where}: column {shortened(column)} chosen as {member}, but the file has {count_columns(width)}"
        )
    hint = f"; the header has: {shortened(', '.join(titles), 500)}" if titles else "; without a header, pick by number"
    raise GraphError(f"{where}: no column '{shortened(column)}' for {member}{suggest(column, titles or [])}{hint}")
