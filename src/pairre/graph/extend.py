"""A graph with more triples: new entities get the ids after those that are there, so that every old id stays."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from pairre.graph.annotations import RDF_TYPE, Annotations
from pairre.graph.formats import Layout, TripleColumns, TripleFile, read_triples
from pairre.graph.graph import Graph, Split
from pairre.graph.selection import labels_in, select_relations, types_in
from pairre.graph.split import distinct, distinct_weighted
from pairre.graph.vocabulary import Vocabulary
from pairre.support.errors import GraphError
from pairre.support.reading import shortened

log = logging.getLogger("pairre")
_NAMED = 5  # names that a message has
_COMPARED = 10_000  # new names that are compared with known ones
NewTriples = str | Path | Iterable[tuple[str, str, str]]


@dataclass(frozen=True)
class ExtendedGraph:
    """A graph with new triples at the end of train."""

    graph: Graph
    added: Tensor  # int32 [N, 3]
    num_known: int  # triples that the graph had in one of its splits, which were left out

    @property
    def named(self) -> Tensor:
        """The ids of the entities that the new triples name, in ascending order."""
        ids: Tensor = torch.unique(self.added[:, [0, 2]].long())
        return ids


def read_new_triples(new: NewTriples, layout: Layout) -> tuple[TripleColumns, str]:
    """Return the triples of a file, or of rows of names, and what to call them in a message."""
    if isinstance(new, str | Path):
        return read_triples(Path(new), layout), str(new)
    rows = list(new)
    for position, row in enumerate(rows, start=1):
        if len(row) != 3 or not all(isinstance(name, str) and name.strip() for name in row):
            raise GraphError(f"new triple {position}: three names expected, head, relation and tail, not {row!r}")
    if not rows:
        raise GraphError("new triples: none are given")
    return TripleFile(Path("new triples")).columns(rows), "new triples"


def extend_graph(graph: Graph, columns: TripleColumns, source: str) -> ExtendedGraph:
    """Return a graph with more triples in train; the `source` of them is named in errors.

    New entities are appended to the vocabulary in the order of their first appearance. Triples that any split has
    already are left out, and a new relation is refused, because nothing says what its vector should be.
    """
    has_types = any(RDF_TYPE in chunk.dictionary.to_pylist() for chunk in columns.relation.chunks)
    if has_types and graph.relations.find(RDF_TYPE) is None:
        [columns] = select_relations([columns], (), (RDF_TYPE,), source)  # types beside the triples, as in the graph
    relation, new_relations = _ids(graph.relations, [_relations_as_known(graph, columns.relation)])
    if len(new_relations):
        raise GraphError(
            f"{source}: relations that the run does not know: {_some(new_relations)}; entities can be added, relations "
            "not: check the names, or learn new ones with pairre train GRAPH --init-from RUN"
        )
    ends, new_entities = _ids(graph.entities, [_entities_as_known(graph, c) for c in (columns.head, columns.tail)])
    _warn_of_similar(graph, new_entities, source)
    triples = np.stack([ends[0], relation[0], ends[1]], 1)
    num_entities = graph.num_entities + len(new_entities)
    weights = columns.weight
    if weights is None:
        triples = distinct(triples, num_entities, graph.num_relations)
    else:
        triples, weights = distinct_weighted(triples, weights)
    known = _is_known(graph, triples)
    if known.all():
        raise GraphError(f"{source}: nothing new: the graph has all of its {len(triples):,} triples")
    added = torch.from_numpy(np.ascontiguousarray(triples[~known]))
    new_weights = None if weights is None else torch.from_numpy(weights[~known])
    extended = graph
    if len(new_entities):
        if graph.types:
            raise GraphError(f"{graph.name}: its entities are numbered by type, so that none can be added")
        names = pa.concat_arrays([graph.entities.names, new_entities])
        entities = Vocabulary(names, "entity")
        annotated = _annotated(graph.annotations, columns, graph.num_entities, entities)
        extended = replace(graph, entities=entities, annotated=annotated, stored=None)
    extended = replace(
        extended,
        train=torch.cat([graph.train, added]),
        weights=_extended_weights(graph, new_weights, len(added)),
        stored=None,
    )
    return ExtendedGraph(extended, added, int(known.sum()))


def _relations_as_known(graph: Graph, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return relations under the names that the graph has; case and accents are forgiven, as none can be new."""

    def known(names: pa.Array) -> list[str]:
        ids = [graph.relation_names.find_or_none(name) for name in names.to_pylist()]
        return [name if id is None else graph.relations[id] for name, id in zip(names.to_pylist(), ids, strict=True)]

    return _renamed(column, graph.relations, known)


def _entities_as_known(graph: Graph, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return entities under the names that the graph has, or would have."""
    return _renamed(column, graph.entities, graph.entity_names.same)


def _renamed(
    column: pa.ChunkedArray, vocabulary: Vocabulary, rename: Callable[[pa.Array], pa.Array | list[str]]
) -> pa.ChunkedArray:
    """Return a column of names in which those that a vocabulary lacks are replaced."""
    chunks = []
    for chunk in column.chunks:
        names = chunk.dictionary.cast(vocabulary.names.type)
        unknown = pc.invert(pc.is_in(names, value_set=vocabulary.names))
        replaced = pa.array(rename(names.filter(unknown)), names.type)
        chunks.append(pc.replace_with_mask(names, unknown, replaced).take(chunk.indices))
    return pa.chunked_array(chunks, vocabulary.names.type)


def _warn_of_similar(graph: Graph, new_entities: pa.Array, source: str) -> None:
    """Log which new entities may be known ones that are spelt in another way."""
    found = {name: graph.entity_names.similar(name) for name in new_entities[:_COMPARED].to_pylist()}
    similar = {name: graph.entities[id] for name, id in found.items() if id is not None}
    if similar:
        name, known = next(iter(similar.items()))
        log.warning(
            "%s: %s new entities are spelt nearly as known ones, such as %r (known: %r); write known names exactly",
            *(source, f"{len(similar):,}", shortened(name), shortened(known)),
        )


def _annotated(known: Annotations, columns: TripleColumns, num_old: int, entities: Vocabulary) -> Annotations:
    """Return the annotations of a graph with the labels and types that new triples bring for new entities."""
    labels, types = labels_in([columns], entities), types_in([columns], entities)
    if labels is not None or known.entity_labels is not None:
        kind = pa.large_string() if known.entity_labels is None else known.entity_labels.type
        old = pa.nulls(num_old, kind) if known.entity_labels is None else known.entity_labels
        num_new = len(entities) - num_old
        new = pa.nulls(num_new, kind) if labels is None else labels.slice(num_old).cast(kind)
        known = replace(known, entity_labels=pa.concat_arrays([old, new]))
    if types is not None and known.entity_types is not None:
        known = replace(known, entity_types=known.entity_types.with_others(types))
    return known


def _extended_weights(graph: Graph, new: Tensor | None, num_added: int) -> dict[Split, Tensor]:
    """Return the weights of a graph with those of new triples; where old or new ones have none, they weigh the mean."""
    old = graph.weights.get("train")
    if old is None and new is None:
        return graph.weights
    if old is None:
        assert new is not None
        old = new.mean().expand(len(graph.train))
    if new is None:
        new = old.mean().expand(num_added)
    return {**graph.weights, "train": torch.cat([old, new])}


def _ids(vocabulary: Vocabulary, columns: list[pa.ChunkedArray]) -> tuple[list[np.ndarray], pa.Array]:
    """Return the ids of columns of names, new ones counted on after those of the vocabulary, and the new names."""
    names = pa.concat_arrays([chunk.cast(vocabulary.names.type) for column in columns for chunk in column.chunks])
    old = vocabulary.find_all(names)
    new_names = names.filter(old.is_null()).unique()
    new = pc.add(pc.index_in(names, value_set=new_names), pa.scalar(len(vocabulary), pa.int32()))
    ids = pc.coalesce(old, new).to_numpy(zero_copy_only=False).astype(np.int32)
    return np.split(ids, np.cumsum([len(column) for column in columns])[:-1]), new_names


def _some(names: pa.Array) -> str:
    """Return the first few names and how many others there are, for a message."""
    first = ", ".join(repr(shortened(name)) for name in names[:_NAMED].to_pylist())
    return first if len(names) <= _NAMED else f"{first} and {len(names) - _NAMED:,} more"


def _is_known(graph: Graph, triples: np.ndarray) -> np.ndarray:
    """Return which triples are in a split of the graph, bool [N]."""
    rows = torch.from_numpy(triples)
    old = (rows[:, [0, 2]] < graph.num_entities).all(1)
    known = torch.zeros(len(rows), dtype=torch.bool)
    known[old] = graph.known.side("tail").contains(rows[old], rows[old][:, 2:].long())[:, 0]
    return known.numpy()
