"""Which relations of a source become part of the graph, and what the source says of names beside triples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pairre.graph.annotations import RDF_TYPE, Annotations, EntityTypes, labels_by_id
from pairre.graph.formats import TripleColumns
from pairre.graph.formats.registry import MEMBERS, NAMES
from pairre.graph.names import Names
from pairre.graph.vocabulary import Vocabulary
from pairre.support.errors import GraphError

EXCLUDED = "other relations"  # what is skipped


def select_relations(
    files: Sequence[TripleColumns], only: Sequence[str], exclude: Sequence[str], where: object
) -> list[TripleColumns]:
    """Return the triples of the relations in `only`, or of all, without those of the relations in `exclude`.

    Relations are named as people type them. The types of entities are kept even if rdf:type is no relation any more.
    """
    if not only and not exclude:
        return list(files)
    dictionaries = [chunk.dictionary for file in files for chunk in file.relation.chunks]
    vocabulary = Vocabulary(pc.unique(pa.concat_arrays(dictionaries)), "relation")
    names = Names(vocabulary, labels_in(files, vocabulary), _prefixes(files))
    kept = np.full(len(vocabulary), not only)
    kept[names.find_all(list(only))] = True
    kept[names.find_all(list(exclude))] = False
    selected = [_selected(file, vocabulary, kept) for file in files]
    if not len(selected[0].head):
        raise GraphError(f"{where}: no triples are left by --only and --exclude")
    return selected


def found_in(files: Sequence[TripleColumns], entities: Vocabulary, relations: Vocabulary) -> Annotations:
    """Return the prefixes, labels and types that files have for the names of a graph, and what was skipped in them."""
    skipped: Counter[str] = Counter()
    for file in files:
        skipped.update(file.skipped)
    return Annotations(
        _prefixes(files),
        {what: number for what, number in skipped.items() if number},
        labels_in(files, entities),
        labels_in(files, relations),
        types_in(files, entities),
    )


def _prefixes(files: Sequence[TripleColumns]) -> dict[str, str]:
    return {prefix: space for file in reversed(files) for prefix, space in file.prefixes.items()}


def labels_in(files: Sequence[TripleColumns], vocabulary: Vocabulary) -> pa.Array | None:
    """Return the best label that the files have for each name of a vocabulary, or None if they have none."""
    tables = [file.labels for file in files if file.labels is not None]
    if not tables:
        return None
    labels = pa.concat_tables(tables)
    labels = labels.take(np.argsort(labels["rank"].to_numpy(), kind="stable"))
    return labels_by_id(vocabulary, labels["name"].combine_chunks(), labels["label"].combine_chunks())


def types_in(files: Sequence[TripleColumns], entities: Vocabulary) -> EntityTypes | None:
    """Return the types of the entities that the graph has, or None if the files have no types beside their triples."""
    pairs = [file.types for file in files if file.types is not None]
    if not pairs:
        return None
    names, types = (pa.concat_arrays(columns) for columns in zip(*pairs, strict=True))
    return EntityTypes.of_names(entities, names, types)


def _selected(file: TripleColumns, vocabulary: Vocabulary, kept: np.ndarray) -> TripleColumns:
    rows = _in(file.relation, vocabulary, kept)
    type_id = vocabulary.find(RDF_TYPE)
    types = None
    if type_id is not None and not kept[type_id]:
        typed = _in(file.relation, vocabulary, np.arange(len(kept)) == type_id)
        head, tail = (c.filter(pa.array(typed)).cast(pa.string()).combine_chunks() for c in (file.head, file.tail))
        types = head, tail
    columns = {member: _filtered(getattr(file, member), rows) for member in MEMBERS}
    skipped = {**file.skipped, EXCLUDED: int((~rows).sum())}
    weight = None if file.weight is None else file.weight[rows]
    return replace(file, **columns, skipped=skipped, types=types, weight=weight)


def _in(column: pa.ChunkedArray, vocabulary: Vocabulary, wanted: np.ndarray) -> np.ndarray:
    """Return for every row of a column whether its name is one of those that are wanted by id."""
    parts = [
        wanted[vocabulary.find_all(chunk.dictionary).to_numpy()][chunk.indices.to_numpy()] for chunk in column.chunks
    ]
    return np.concatenate([np.empty(0, bool), *parts])


def _filtered(column: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    """Return some rows of a column, with dictionaries that have no other names."""
    chunks = []
    for chunk in column.filter(pa.array(rows)).chunks:
        used = chunk.indices.dictionary_encode()
        chunks.append(pa.DictionaryArray.from_arrays(used.indices, chunk.dictionary.take(used.dictionary)))
    return pa.chunked_array(chunks, NAMES)
