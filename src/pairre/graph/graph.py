"""A graph in memory: two vocabularies, three splits of id triples, and what else is known of names and candidates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from pairre.graph.annotations import RDF_TYPE, Annotations, EntityTypes
from pairre.graph.domains import Domains
from pairre.graph.index import KnownTriples, Side
from pairre.graph.names import Names
from pairre.graph.stored.files import DESCRIPTION, StoredFiles
from pairre.graph.vocabulary import Vocabulary, read_columns
from pairre.support.errors import GraphError
from pairre.support.files import write_json, written_whole
from pairre.support.reading import file_fault, parse_json, read_text, shortened
from pairre.support.tensors import write_tensors

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
SIDES: tuple[Side, ...] = ("head", "tail")


@dataclass(frozen=True, eq=False)
class Graph:
    """A knowledge graph as ids: each split is an int32 tensor [N, 3] of head, relation, tail."""

    name: str
    entities: Vocabulary
    relations: Vocabulary
    train: Tensor
    valid: Tensor
    test: Tensor
    _: KW_ONLY
    candidates: dict[str, Tensor] = field(default_factory=dict)  # "valid.head" → int32 [N, K]
    types: dict[str, int] = field(default_factory=dict)  # of entities numbered type by type: type → its first id
    annotated: Annotations | Callable[[], Annotations] = field(default_factory=Annotations)  # or how to read them
    weights: dict[Split, Tensor] = field(default_factory=dict)  # split → float32 [N], how much each triple counts
    stored: StoredFiles | None = None  # where names, triples and their index are on disk, if they are not in memory

    def __post_init__(self) -> None:
        """Refuse ids without a name, and weights that do not fit or that nothing could be learnt with."""
        if self.stored is None:  # else they were checked when they were written, and reading them all takes long
            for split in SPLITS:
                self._check_ids(split)
        for name, weights in self.weights.items():
            if name not in SPLITS or weights.dtype != torch.float32 or weights.shape != getattr(self, name).shape[:1]:
                raise GraphError(f"{self.name}: the weights of {name} are not one float32 number for each triple of it")
            if not (weights.isfinite() & (weights >= 0)).all():
                raise GraphError(f"{self.name}: a weight of {name} is negative or not finite")
        if (train := self.weights.get("train")) is not None and len(train) and not train.any():
            raise GraphError(f"{self.name}: the weight of every train triple is 0, so that there is nothing to learn")

    def _check_ids(self, split: Split) -> None:
        """Refuse triples that are not int32 [N, 3], or that have an id outside of its vocabulary."""
        triples = self.split(split)
        if triples.dtype != torch.int32 or triples.ndim != 2 or triples.shape[1] != 3:
            found = f"{str(triples.dtype).removeprefix('torch.')} {list(triples.shape)}"
            raise GraphError(f"{self.name}: {split} is {found}; an int32 tensor [N, 3] of ids expected")
        if triples.is_meta or not len(triples):  # a plan has sizes and no triples
            return
        sizes = {"head": self.num_entities, "relation": self.num_relations, "tail": self.num_entities}
        ranges = zip(sizes.items(), *(ends.tolist() for ends in triples.aminmax(dim=0)), strict=True)
        for (item, size), least, most in ranges:
            if least < 0 or most >= size:
                wrong = least if least < 0 else most
                raise GraphError(f"{self.name}: {split}: the {item} {wrong} is not an id from 0 to {size - 1}")

    @property
    def num_entities(self) -> int:
        """The number of entities of all splits."""
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """The number of relations of all splits."""
        return len(self.relations)

    def split(self, name: Split) -> Tensor:
        """Return the triples of a split, int32 [N, 3]."""
        triples: Tensor = getattr(self, name)
        return triples

    def fixed_candidates(self, split: Split) -> dict[Side, Tensor]:
        """Return the candidates that a benchmark prescribes for each triple of a split, int32 [N, K] by side.

        The result is empty if the benchmark prescribes none, so that all entities are candidates.
        """
        return {side: self.candidates[f"{split}.{side}"] for side in SIDES if f"{split}.{side}" in self.candidates}

    def without_test(self) -> Graph:
        """Return the graph with an empty test split, so that a search for settings cannot use it."""
        kept = {name: ids for name, ids in self.candidates.items() if not name.startswith("test.")}
        weights: dict[Split, Tensor] = {split: values for split, values in self.weights.items() if split != "test"}
        return replace(self, test=self.test[:0], candidates=kept, weights=weights, stored=None)

    def __repr__(self) -> str:
        sizes = " / ".join(f"{len(self.split(s)):,}" for s in SPLITS)
        return f"Graph({self.name}: {self.num_entities:,} entities, {self.num_relations:,} relations, {sizes} triples)"

    @cached_property
    def known(self) -> KnownTriples:
        """The index of the triples of all splits, which a filtered rank leaves out."""
        sizes = self.num_entities, self.num_relations
        if not len(self.valid) and not len(self.test):
            return self.known_train
        if self.stored:
            return self.stored.index("known", lambda: torch.cat([self.split(s) for s in SPLITS]), *sizes)
        return KnownTriples(torch.cat([self.split(s) for s in SPLITS]), *sizes)

    @cached_property
    def known_train(self) -> KnownTriples:
        """The index of the triples of train, which is all that training may use."""
        sizes = self.num_entities, self.num_relations
        return self.stored.index("train", self.train, *sizes) if self.stored else KnownTriples(self.train, *sizes)

    @cached_property
    def _by_split(self) -> dict[Split, KnownTriples]:
        sizes = self.num_entities, self.num_relations
        valid, test = (KnownTriples(triples, *sizes) for triples in (self.valid, self.test))
        return {"train": self.known_train, "valid": valid, "test": test}

    def split_of(self, triples: Tensor) -> Tensor:
        """Return the first split that has each of [N, 3] triples, as its position in `SPLITS`, or −1; int8 [N]."""
        result = torch.full((len(triples),), -1, dtype=torch.int8)
        for position, split in reversed(list(enumerate(SPLITS))):
            index = self._by_split[split].side("tail")
            result[index.contains(triples, triples[:, 2:])[:, 0]] = position
        return result

    @cached_property
    def domains(self) -> Domains:
        """The entities that are plausible on each side of each relation, as train shows."""
        return Domains(self)

    @cached_property
    def leakage(self) -> dict[str, dict[str, Any]]:
        """How many triples of valid and of test follow almost directly from train; see `pairre.graph.leakage`."""
        from pairre.graph.leakage import leakage  # which needs this class

        return {split: leakage(self, split) for split in SPLITS[1:] if len(self.split(split))}

    def names(self, triples: Tensor) -> Iterator[tuple[str, str, str]]:
        """Yield the names of head, relation and tail of id triples."""
        head, relation, tail = triples.T.tolist()
        yield from zip(
            self.entities.name_list(head),
            self.relations.name_list(relation),
            self.entities.name_list(tail),
            strict=True,
        )

    def labels(self, triples: Tensor) -> Iterator[tuple[str | None, str | None, str | None]]:
        """Yield the labels of head, relation and tail of id triples, None where there is none."""
        known = self.annotations
        columns = zip(triples.T, (known.entity_labels, known.relation_labels, known.entity_labels), strict=True)
        texts = ([None] * len(ids) if of is None else of.take(pa.array(ids.numpy())).to_pylist() for ids, of in columns)
        yield from zip(*texts, strict=True)

    @cached_property
    def annotations(self) -> Annotations:
        """Prefixes, labels and types of the graph, and what was skipped when it was read."""
        return self.annotated if isinstance(self.annotated, Annotations) else self.annotated()

    @cached_property
    def entity_types(self) -> EntityTypes | None:
        """The types of entities, or None if none are known: as given, by numbered ranges, or by rdf:type in train."""
        if (given := self.annotations.entity_types) is not None:
            return given
        if self.types:
            return EntityTypes.of_ranges(self.types, self.num_entities)
        relation = self.relations.find(RDF_TYPE)
        return None if relation is None else EntityTypes.of_triples(self.train, relation, self.entities)

    @cached_property
    def type_names(self) -> Names:
        """The types of entities as people type and read them."""
        names = self.entity_types.names if self.entity_types else Vocabulary((), "type")
        labels = self.annotations.entity_labels
        if labels is not None:
            labels = labels.take(self.entities.find_all(names.names))
        return Names(names, labels, self.annotations.prefixes)

    @cached_property
    def entity_names(self) -> Names:
        """Entities as people type and read them."""
        return Names(self.entities, self.annotations.entity_labels, self.annotations.prefixes)

    @cached_property
    def relation_names(self) -> Names:
        """Relations as people type and read them."""
        return Names(self.relations, self.annotations.relation_labels, self.annotations.prefixes)

    def find_entity(self, text: str) -> int:
        """Return the id of the entity that a person means by a name, an IRI, a CURIE, a label or a local name.

        A NameNotFoundError lists the choices if there are several, and near names if there is none.
        """
        id = self.entities.find(text)
        return self.entity_names.find(text) if id is None else id

    def find_relation(self, text: str) -> int:
        """Return the id of the relation that a person means by a text, as `find_entity` does."""
        id = self.relations.find(text)
        return self.relation_names.find(text) if id is None else id

    def find_entities(self, texts: Sequence[str]) -> list[int]:
        """Return the ids of the entities that a person means by many texts."""
        return self.entity_names.find_all(texts)

    def find_relations(self, texts: Sequence[str]) -> list[int]:
        """Return the ids of the relations that a person means by many texts."""
        return self.relation_names.find_all(texts)

    def show_entity(self, id: int) -> str:
        """Return an entity as a person reads it: its label, else its CURIE, else its name."""
        return self.entity_names.show(id)

    def show_relation(self, id: int) -> str:
        """Return a relation as a person reads it: its label, else its CURIE, else its name."""
        return self.relation_names.show(id)

    def entity_label(self, id: int) -> str | None:
        """Return the label of an entity, or None if it has none."""
        return self.entity_names.label(id)

    def relation_label(self, id: int) -> str | None:
        """Return the label of a relation, or None if it has none."""
        return self.relation_names.label(id)

    @cached_property
    def has_labels(self) -> bool:
        """Whether any entity or relation has a label."""
        return self.annotations.entity_labels is not None or self.annotations.relation_labels is not None

    @cached_property
    def fingerprint(self) -> str:
        """A hash of names, ids and splits; a run can only be resumed on a graph with the same fingerprint."""
        if self.stored:
            return self.stored.fingerprint
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update(f"{vocabulary.item} {len(vocabulary)} ".encode())
            for start in range(0, len(vocabulary), 1 << 16):
                lengths = pc.binary_length(vocabulary.names.slice(start, 1 << 16)).cast(pa.int32())
                digest.update(lengths.to_numpy().tobytes())
            for start in range(0, len(vocabulary), 1 << 16):
                digest.update("".join(vocabulary.names.slice(start, 1 << 16).to_pylist()).encode())
        for split in SPLITS:
            digest.update(f"{split} {len(self.split(split))} ".encode())
            digest.update(self.split(split).numpy().tobytes())
            if split in self.weights:
                digest.update(b"weights" + self.weights[split].numpy().tobytes())
        for name in sorted(self.candidates):
            digest.update(f"{name} {list(self.candidates[name].shape)} ".encode())
            digest.update(self.candidates[name].flatten().numpy().data)
        digest.update(json.dumps(self.types).encode() if self.types else b"")
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write vocabularies and splits as Parquet, and whatever else there is, to a folder.

        The files of a graph on disk are not copied but linked where the file system permits.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if self.stored:
            self.stored.share(folder)
            self.annotations.save(folder)
            return
        self.entities.save(folder / "entities.parquet")
        self.relations.save(folder / "relations.parquet")
        for split in SPLITS:
            columns = dict(zip(("head", "relation", "tail"), self.split(split).T.contiguous().numpy(), strict=True))
            if split in self.weights:
                columns["weight"] = self.weights[split].numpy()
            with written_whole(folder / f"{split}.parquet") as part:
                pq.write_table(pa.table(columns), part, compression="zstd")
        if self.candidates:
            write_tensors(folder / "negatives.safetensors", self.candidates)
        if self.types:
            write_json(folder / "types.json", self.types)
        self.annotations.save(folder)

    @classmethod
    def load(cls, folder: Path, name: str) -> Graph:
        """Return the graph that `save` wrote to a folder; whatever is damaged in it is a GraphError."""
        if (folder / DESCRIPTION).is_file():
            from pairre.graph.stored.load import load_stored  # which needs this class

            return load_stored(folder, name)
        entities = Vocabulary.load(folder / "entities.parquet", "entity")
        relations = Vocabulary.load(folder / "relations.parquet", "relation")
        sizes = (len(entities), len(relations), len(entities))
        splits = [_load_triples(folder / f"{split}.parquet", sizes) for split in SPLITS]
        weights = {split: _load_weights(folder / f"{split}.parquet") for split in SPLITS}
        tensors, types = folder / "negatives.safetensors", folder / "types.json"
        return cls(
            name,
            entities,
            relations,
            *splits,
            candidates=_load_candidates(tensors, splits) if tensors.exists() else {},
            types=_load_types(types, len(entities)) if types.exists() else {},
            annotated=partial(Annotations.load, folder, len(entities), len(relations)),  # a lambda would not pickle
            weights={split: values for split, values in weights.items() if values is not None},
        )


def _load_triples(path: Path, sizes: tuple[int, int, int]) -> Tensor:
    """Return the triples of a stored split, every id of which must be below the size of its vocabulary."""
    triples = []
    for column, size in zip(read_columns(path, "head", "relation", "tail"), sizes, strict=True):
        # Not `to_numpy`, which loads pandas where that is installed: it would take as long as all else here.
        ids = from_dlpack(column.combine_chunks()) if column.type == pa.int32() else torch.tensor([-1])
        if len(ids) and not 0 <= ids.min() <= ids.max() < size:
            raise GraphError(f"{path}: damaged: an id without a name")
        triples.append(ids)
    return torch.stack(triples, 1)


def _load_weights(path: Path) -> Tensor | None:
    """Return the weights of a stored split, or None if it has none; `Graph` checks them."""
    if "weight" not in pq.read_schema(path).names:
        return None
    [column] = read_columns(path, "weight")
    if column.type != pa.float32():
        raise GraphError(f"{path}: damaged: the weights are {column.type}")
    return torch.from_numpy(column.to_numpy().copy())


def _load_candidates(path: Path, splits: list[Tensor]) -> dict[str, Tensor]:
    """Return the stored candidates, which are mapped into memory and so read on demand."""
    if fault := file_fault(path):
        raise GraphError(f"{path}: {fault}")
    try:
        candidates = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise GraphError(f"{path}: damaged: {' '.join(str(error).split())}") from error
    sizes = {f"{split}.{side}": len(triples) for split, triples in zip(SPLITS, splits, strict=True) for side in SIDES}
    for name, ids in candidates.items():
        if ids.dtype != torch.int32 or ids.dim() != 2 or len(ids) != sizes.get(name):
            raise GraphError(f"{path}: damaged: '{shortened(name)}' does not fit to the split")
    return candidates


def _load_types(path: Path, num_entities: int) -> dict[str, int]:
    """Return the stored entity types with their first ids, which must ascend."""
    try:
        types = parse_json(read_text(path, GraphError))
    except ValueError as error:
        raise GraphError(f"{path}: damaged: {error}") from error
    starts: list[Any] = list(types.values()) if isinstance(types, dict) else [None]
    if any(type(start) is not int for start in starts) or starts != sorted(starts):
        raise GraphError(f"{path}: damaged: names of types with their first ids, in ascending order, expected")
    if starts and not 0 <= starts[0] <= starts[-1] <= num_entities:
        raise GraphError(f"{path}: damaged: the first id of a type is above the number of entities")
    return dict(types)
