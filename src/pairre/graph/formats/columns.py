"""Which columns of a table hold head, relation and tail: by the user's choice, by well-known titles, or by order."""

from __future__ import annotations

from pairre.graph.formats.registry import MEMBERS, Layout, one_line
from pairre.support.errors import GraphError, suggest

# Well-known titles, the plainest first: it is preferred where a table has two for one member.
_TITLES = (
    ("head", "h", "head_id", "subject", "subj", "s", "subject_id", "source", "src", "from", "start"),
    ("relation", "rel", "r", "relation_id", "predicate", "pred", "p", "property", "edge", "type", "label"),
    ("tail", "t", "tail_id", "object", "obj", "o", "object_id", "target", "dst", "to", "end"),
)


def is_header(cells: list[str], layout: Layout) -> bool:
    """Return whether a first row is a header: columns are chosen by title, or all three have a well-known title."""
    if layout.columns and not all(column.isdecimal() for column in layout.columns):
        return True
    lower = [cell.strip().lower() for cell in cells]
    return all(any(cell in titles for cell in lower) for titles in _TITLES) and len(set(lower)) == len(lower)


def find_columns(where: str, layout: Layout, titles: list[str] | None, width: int) -> list[int]:
    """Return the positions of head, relation and tail in a row of `width` cells.

    `titles` is the header, or None if the table has none; `where` is the place that a GraphError names.
    """
    titles = None if titles is None else [one_line(title) for title in titles]
    if layout.columns is None:
        return _default_columns(where, titles or [], width)
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


def _default_columns(where: str, titles: list[str], width: int) -> list[int]:
    lower = [title.lower() for title in titles]
    found = [next((lower.index(name) for name in names if name in lower), -1) for names in _TITLES]
    if min(found) >= 0:
        return found
    if width != 3:
        hint = "; pick them with --columns, e.g. --columns 1,2,3" if width > 3 else ""
        raise GraphError(f"{where}: {count_columns(width)}, expected 3 ({', '.join(MEMBERS)}){hint}")
    return [0, 1, 2]


def _position(where: str, column: str, member: str, titles: list[str] | None, width: int) -> int:
    """Return the position of one column that was chosen by title or by number; a title wins over a number."""
    if titles is not None and titles.count(column) == 1:
        return titles.index(column)
    if titles is not None and column in titles:
        raise GraphError(f"{where}: two columns are named '{column}'; pick by number, e.g. --columns 1,2,3")
    if column.isdecimal() and 1 <= int(column) <= width:
        return int(column) - 1
    if column.isdecimal():
        raise GraphError(f"{where}: column {column} chosen as {member}, but the file has {count_columns(width)}")
    hint = f"; the header has: {', '.join(titles)}" if titles else "; without a header, pick by number"
    raise GraphError(f"{where}: no column '{column}' for {member}{suggest(column, titles or [])}{hint}")
