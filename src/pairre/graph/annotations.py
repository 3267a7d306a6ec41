"""What is known of names beside the triples: prefixes of IRIs, labels, types of entities, and what was skipped.

Nothing here changes what is learnt. It decides how names are shown, what a person may type, and which answers make
sense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from pairre.graph.vocabulary import Vocabulary, read_columns
from pairre.support.errors import GraphError
from pairre.support.files import write_json, written_whole
from pairre.support.reading import parse_json, read_text

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_SOURCE, _TYPES, _TYPE_NAMES = "source.json", "entity-types.parquet", "type-names.parquet"
_LABELS = {"entity": "entity-labels.parquet", "relation": "relation-labels.parquet"}


@dataclass(frozen=True, eq=False)
class EntityTypes:
    """The types of entities as pairs of ids in ascending order; an entity may have several types, or none."""

    names: Vocabulary  # of the types
    entities: Tensor  # int32 [P]
    types: Tensor  # int32 [P]

    @classmethod
    def of_pairs(cls, names: Vocabulary, entities: np.ndarray, types: np.ndarray) -> EntityTypes:
        """Return the types of pairs of ids in any order, each pair once."""
        pairs = np.unique(entities.astype(np.int64) * max(1, len(names)) + types)
        both = np.divmod(pairs, max(1, len(names)))
        return cls(names, *(torch.from_numpy(ids.astype(np.int32)) for ids in both))

    def with_others(self, other: EntityTypes) -> EntityTypes:
        """Return these types and other ones of the same entities."""
        new = other.names.names.cast(self.names.names.type)
        new = new.filter(pc.invert(pc.is_in(new, value_set=self.names.names)))
        names = Vocabulary(pa.concat_arrays([self.names.names, new]), "type")
        ids = pc.index_in(other.names.names.cast(names.names.type), value_set=names.names).to_numpy()
        types = np.concatenate([self.types.numpy(), ids[other.types.numpy()]])
        return self.of_pairs(names, np.concatenate([self.entities.numpy(), other.entities.numpy()]), types)

    @classmethod
    def of_names(cls, entities: Vocabulary, names: pa.Array, types: pa.Array) -> EntityTypes | None:
        """Return the types of entities by name, or None if no name is that of an entity."""
        ids = entities.find_all(names)
        rows = pc.indices_nonzero(ids.is_valid())
        if not len(rows):
            return None
        encoded = types.take(rows).dictionary_encode()
        vocabulary = Vocabulary(encoded.dictionary, "type")
        return cls.of_pairs(vocabulary, ids.take(rows).to_numpy(), encoded.indices.to_numpy())

    @classmethod
    def of_ranges(cls, first_ids: Mapping[str, int], num_entities: int) -> EntityTypes:
        """Return the types of entities that are numbered type by type, from the first id of each type."""
        sizes = np.diff([*first_ids.values(), num_entities])
        types = torch.from_numpy(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))
        start = next(iter(first_ids.values()), 0)
        return cls(Vocabulary(first_ids, "type"), torch.arange(start, num_entities, dtype=torch.int32), types)

    @classmethod
    def of_triples(cls, triples: Tensor, relation: int, entities: Vocabulary) -> EntityTypes:
        """Return the types that are the tails of a relation; their names are those of the entities."""
        head, _, tail = triples[triples[:, 1] == relation].T.numpy()
        ids, types = np.unique(tail, return_inverse=True)
        return cls.of_pairs(Vocabulary(entities.names.take(pa.array(ids)), "type"), head, types)

    def of(self, entity: int) -> list[int]:
        """Return the ids of the types of an entity."""
        start, end = torch.searchsorted(self.entities, torch.tensor([entity, entity + 1], dtype=torch.int32)).tolist()
        ids: list[int] = self.types[start:end].tolist()
        return ids

    def members(self, type: int) -> Tensor:
        """Return the ids of the entities of a type, ascending."""
        return self.entities[self.types == type]


@dataclass(frozen=True, eq=False)
class Annotations:
    """Prefixes, labels and types of a graph; a label is null where there is none."""

    prefixes: Mapping[str, str] = field(default_factory=dict)  # "brick" → "https://brickschema.org/schema/Brick#"
    skipped: Mapping[str, int] = field(default_factory=dict)  # what was not read → how many triples
    entity_labels: pa.Array | None = None  # [E]
    relation_labels: pa.Array | None = None  # [R]
    entity_types: EntityTypes | None = None

    def save(self, folder: Path) -> None:
        """Write what there is to a folder."""
        if self.prefixes or self.skipped:
            write_json(folder / _SOURCE, {"prefixes": dict(self.prefixes), "skipped": dict(self.skipped)})
        for item, labels in (("entity", self.entity_labels), ("relation", self.relation_labels)):
            if labels is not None:
                ids = pc.indices_nonzero(labels.is_valid()).cast(pa.int32())
                _write(folder / _LABELS[item], {"id": ids, "label": labels.drop_null()})
        if self.entity_types is not None:
            pairs = self.entity_types
            _write(folder / _TYPES, {"entity": pairs.entities.numpy(), "type": pairs.types.numpy()})
            pairs.names.save(folder / _TYPE_NAMES)

    @classmethod
    def load(cls, folder: Path, num_entities: int, num_relations: int) -> Annotations:
        """Return what `save` wrote to a folder; whatever is damaged in it is a GraphError."""
        source = _load_source(folder / _SOURCE) if (folder / _SOURCE).exists() else {"prefixes": {}, "skipped": {}}
        return cls(
            **source,
            entity_labels=_load_labels(folder / _LABELS["entity"], num_entities),
            relation_labels=_load_labels(folder / _LABELS["relation"], num_relations),
            entity_types=_load_types(folder, num_entities) if (folder / _TYPES).exists() else None,
        )


def labels_by_id(vocabulary: Vocabulary, names: pa.Array, labels: pa.Array) -> pa.Array | None:
    """Return a label for each id, null where there is none, or None if no name has one; the first of a name counts.

    Names that the vocabulary lacks, and labels of white space only, are left out.
    """
    ids = vocabulary.find_all(names)
    labels = pc.utf8_trim_whitespace(labels)
    found = pc.and_(ids.is_valid(), pc.greater(pc.binary_length(labels), 0)).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(found)
    known, first = np.unique(ids.take(rows).to_numpy(), return_index=True)
    return _dense(known, labels.take(rows[first]), len(vocabulary)) if len(known) else None


def _dense(ids: np.ndarray, labels: pa.Array, size: int) -> pa.Array:
    """Return an array that has a label at each of the ids, and null elsewhere."""
    rows = np.full(size, -1, np.int64)
    rows[ids] = np.arange(len(ids))
    return labels.take(pa.array(rows, mask=rows < 0))


def _write(path: Path, columns: dict[str, Any]) -> None:
    with written_whole(path) as part:
        pq.write_table(pa.table(columns), part, compression="zstd")


def _load_source(path: Path) -> dict[str, dict[str, Any]]:
    try:
        source = parse_json(read_text(path, GraphError))
    except ValueError as error:
        raise GraphError(f"{path}: damaged: {error}") from error
    expected = {"prefixes": str, "skipped": int}
    if not isinstance(source, dict) or source.keys() != expected.keys():
        raise GraphError(f"{path}: damaged: prefixes, and numbers of skipped triples, expected")
    for key, kind in expected.items():
        values = source[key]
        if not isinstance(values, dict) or any(type(value) is not kind for value in values.values()):
            raise GraphError(f"{path}: damaged: '{key}' is not a table of {kind.__name__} values")
    return source


def _load_labels(path: Path, size: int) -> pa.Array | None:
    if not path.exists():
        return None
    ids, labels = read_columns(path, "id", "label")
    return _dense(_checked_ids(path, ids, size), _checked_text(path, labels), size)


def _load_types(folder: Path, num_entities: int) -> EntityTypes:
    path, names = folder / _TYPES, Vocabulary.load(folder / _TYPE_NAMES, "type")
    entities, types = read_columns(path, "entity", "type")
    return EntityTypes.of_pairs(
        names, _checked_ids(path, entities, num_entities), _checked_ids(path, types, len(names))
    )


def _checked_ids(path: Path, column: pa.ChunkedArray, size: int) -> np.ndarray:
    """Return a stored column of ids, each of which must be below a size."""
    ids: np.ndarray = column.to_numpy()
    if ids.dtype != np.int32 or (len(ids) and not 0 <= ids.min() <= ids.max() < size):
        raise GraphError(f"{path}: damaged: an id without a name")
    return ids


def _checked_text(path: Path, column: pa.ChunkedArray) -> pa.Array:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise GraphError(f"{path}: damaged: the labels are {column.type}, not text")
    return column.combine_chunks()
