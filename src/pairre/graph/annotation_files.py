"""Files of labels and of types: two columns of text, a name and what it is called, or an entity and a type of it."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pairre.graph.annotations import EntityTypes, labels_by_id
from pairre.graph.formats.columns import count_columns
from pairre.graph.graph import Graph
from pairre.graph.streams import read_lines, split_ending
from pairre.support.errors import GraphError
from pairre.support.reading import file_fault, shortened, shown

log = logging.getLogger("pairre")
# Files of a folder of splits that are read by themselves, by their names without endings.
LABEL_FILES = {"labels": ("entity", "relation"), "entity-labels": ("entity",), "relation-labels": ("relation",)}
TYPE_FILES = ("types", "entity-types")
_ENDINGS = (".tsv", ".csv", ".txt")
_TITLES = (
    {"name", "entity", "relation", "id", "iri", "node", "head"},
    {"label", "title", "type", "class", "name", "description"},
)
_CHUNK = 1 << 16  # rows that are encoded at once


def with_labels(graph: Graph, path: Path, items: Sequence[str] = ("entity", "relation")) -> Graph:
    """Return the graph with the labels of a file, which come before labels that it has."""
    names, labels = _read_pairs(path, "name and label")
    known = graph.annotations
    entities, relations = (
        labels_by_id(vocabulary, names, labels) if vocabulary.item in items else None
        for vocabulary in (graph.entities, graph.relations)
    )
    if entities is None and relations is None:
        raise _none_known(path, names)
    annotations = replace(
        known,
        entity_labels=_first(entities, known.entity_labels),
        relation_labels=_first(relations, known.relation_labels),
    )
    return replace(graph, annotated=annotations)


def with_types(graph: Graph, path: Path) -> Graph:
    """Return the graph with the entity types of a file, which replace those that it has."""
    names, types = _read_pairs(path, "entity and type")
    found = EntityTypes.of_names(graph.entities, names, types)
    if found is None:
        raise _none_known(path, names)
    return replace(graph, annotated=replace(graph.annotations, entity_types=found))


def with_more(graph: Graph, labels: str | Path | Sequence[str | Path] = (), types: str | Path | None = None) -> Graph:
    """Return the graph with the labels of some files before those that it has, and the types of a file beside them."""
    for file in [labels] if isinstance(labels, str | Path) else labels:
        graph = with_labels(graph, Path(file))
    if types is None:
        return graph
    old, typed = graph.annotations.entity_types, with_types(graph, Path(types))
    new = typed.annotations.entity_types
    if old is None or new is None:
        return typed
    return replace(graph, annotated=replace(graph.annotations, entity_types=old.with_others(new)))


def with_files_of(graph: Graph, folder: Path) -> Graph:
    """Return the graph with the labels and types of a folder of splits; a file that is neither is left out."""
    for path in sorted(folder.iterdir()):
        stem = path.name.split(".")[0].lower()
        if split_ending(path)[0] not in _ENDINGS or not path.is_file():
            continue
        try:
            if stem in LABEL_FILES:
                graph = with_labels(graph, path, LABEL_FILES[stem])
            elif stem in TYPE_FILES:
                graph = with_types(graph, path)
        except GraphError as error:
            log.warning("%s; the file is left out", error)
    return graph


def _first(new: pa.Array | None, old: pa.Array | None) -> pa.Array | None:
    """Return the new labels, and the old ones where there is no new one."""
    return old if new is None else new if old is None else pc.coalesce(new, old.cast(new.type))


def _none_known(path: Path, names: pa.Array) -> GraphError:
    first = f", such as '{shortened(names[0])}'," if len(names) else ""
    return GraphError(f"{path}: none of its {len(names):,} names{first} is in the graph")


def _read_pairs(path: Path, what: str) -> tuple[pa.Array, pa.Array]:
    """Return the two columns of a text file without its header; every fault is a GraphError of one line."""
    if split_ending(path)[0] not in _ENDINGS:
        raise GraphError(f"{shown(path)}: a table of {what} ends in {', '.join(_ENDINGS)}, each also .gz or .zst")
    if fault := file_fault(path):
        raise GraphError(f"{shown(path)}: {fault}")
    columns: list[list[pa.Array]] = [[], []]
    try:
        rows = _rows(path, what)
        while block := list(islice(rows, _CHUNK)):
            for column, values in zip(columns, zip(*block, strict=True), strict=True):
                column.append(pa.array(values, pa.string()))
    except (OSError, csv.Error) as error:
        raise GraphError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    names, values = (pa.concat_arrays(column) if column else pa.array([], pa.string()) for column in columns)
    return names, values


def _rows(path: Path, what: str) -> Iterator[tuple[str, str]]:
    """Yield the rows of a file, both cells without white space around them."""
    lines = read_lines(path)
    number, first = next(lines, (1, ""))
    if not first:
        raise GraphError(f"{path}: empty; rows of {what} expected")
    tabs = split_ending(path)[0] == ".tsv" or "\t" in first
    delimiter = "\t" if tabs else ";" if ";" in first and "," not in first else ","
    numbers = [number]
    text = _numbered(chain([(number, first)], lines), numbers)
    reader = csv.reader(text, delimiter=delimiter, quoting=csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL)
    for i, row in enumerate(reader):
        cells = [cell.strip() for cell in row]
        if len(cells) != 2 or not cells[0]:
            fault = "the name is empty" if len(cells) == 2 else f"{count_columns(len(cells))}, expected 2 ({what})"
            raise GraphError(f"{path}:{numbers[0]}: {fault}")
        if i or not all(cell.lower() in titles for cell, titles in zip(cells, _TITLES, strict=True)):
            yield cells[0], cells[1]


def _numbered(lines: Iterator[tuple[int, str]], number: list[int]) -> Iterator[str]:
    """Yield the text of lines, and keep the number of the last one in a list."""
    for number[0], line in lines:
        yield line
