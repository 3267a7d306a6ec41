"""Headers that nobody declared and no title shows: a first row whose names occur nowhere else is asked about."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pairre.graph.formats import Layout, TripleColumns, read_triples
from pairre.support.reading import shortened

log = logging.getLogger("pairre")
Key = TypeVar("Key")


def read_files(
    files: Mapping[Key, Path], layout: Layout, others: Iterable[TripleColumns] = ()
) -> dict[Key, TripleColumns]:
    """Return the triples of the files of a graph, without a first row that is a header by the answer to a question.

    A row is doubtful if its names occur in no other row of any file, nor in `others`. `layout.header` is asked, or if
    there is nobody to ask, a warning says that the row is kept.
    """
    parts = {key: read_triples(path, layout) for key, path in files.items()}
    everything = [*parts.values(), *others]
    for key, columns in parts.items():
        if not columns.header_undecided or not _stands_alone(columns, everything):
            continue
        row = ", ".join(
            f"'{shortened(part[0].as_py(), 50)}'" for part in (columns.head, columns.relation, columns.tail)
        )
        question = f"{files[key]}: the first row ({row}) may be a header: its names occur in no other row"
        if not callable(layout.header):
            log.warning("%s; kept as a triple; --header or --no-header settles it", question)
        elif layout.header(question):
            parts[key] = read_triples(files[key], replace(layout, header=True))
    return parts


def _stands_alone(columns: TripleColumns, everything: list[TripleColumns]) -> bool:
    """Return whether the names of the first of several triples occur in no other triple."""
    head, relation, tail = (column[0].as_py() for column in (columns.head, columns.relation, columns.tail))
    if head == tail or sum(len(other.head) for other in everything) == 1:
        return False
    relations = [other.relation for other in everything]
    entities = [column for other in everything for column in (other.head, other.tail)]
    return _is_unique(relation, relations) and _is_unique(head, entities) and _is_unique(tail, entities)


def _is_unique(name: str, columns: list[pa.ChunkedArray]) -> bool:
    """Return whether a name occurs once in all columns."""
    chunks = [chunk for column in columns for chunk in column.chunks]
    return sum(pc.sum(pc.equal(c.indices, pc.index(c.dictionary, name))).as_py() or 0 for c in chunks) == 1
