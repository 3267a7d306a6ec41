"""A graph in memory: two vocabularies, three splits of id triples and, for some benchmarks, types and candidates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file
from torch import Tensor

from pairre.graph.index import KnownTriples, Side
from pairre.graph.vocabulary import Vocabulary
from pairre.support.files import write_json, write_tensors, written_whole

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


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
    types: dict[str, int] = field(default_factory=dict)  # entity type → its first id, in ascending order

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
        sides: tuple[Side, ...] = ("head", "tail")
        return {side: self.candidates[f"{split}.{side}"] for side in sides if f"{split}.{side}" in self.candidates}

    def without_test(self) -> Graph:
        """Return the graph with an empty test split, so that a search for settings cannot use it."""
        kept = {name: ids for name, ids in self.candidates.items() if not name.startswith("test.")}
        return replace(self, test=self.test[:0], candidates=kept)

    def __repr__(self) -> str:
        sizes = " / ".join(f"{len(self.split(s)):,}" for s in SPLITS)
        return f"Graph({self.name}: {self.num_entities:,} entities, {self.num_relations:,} relations, {sizes} triples)"

    @cached_property
    def known(self) -> KnownTriples:
        """The index of the triples of all splits, which a filtered rank leaves out."""
        return KnownTriples(torch.cat([self.split(s) for s in SPLITS]), self.num_entities, self.num_relations)

    @cached_property
    def known_train(self) -> KnownTriples:
        """The index of the triples of train, which is all that training may use."""
        return KnownTriples(self.train, self.num_entities, self.num_relations)

    def names(self, triples: Tensor) -> Iterator[tuple[str, str, str]]:
        """Yield the names of head, relation and tail of id triples."""
        head, relation, tail = triples.T.tolist()
        yield from zip(
            self.entities.name_list(head),
            self.relations.name_list(relation),
            self.entities.name_list(tail),
            strict=True,
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of names, ids and splits; a run can only be resumed on a graph with the same fingerprint."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update(f"{vocabulary.item} {len(vocabulary)} ".encode())
            digest.update(pc.binary_length(vocabulary.names).to_numpy().tobytes())
            for start in range(0, len(vocabulary), 1 << 16):
                digest.update("".join(vocabulary.names.slice(start, 1 << 16).to_pylist()).encode())
        for split in SPLITS:
            digest.update(f"{split} {len(self.split(split))} ".encode())
            digest.update(self.split(split).numpy().tobytes())
        for name in sorted(self.candidates):
            digest.update(f"{name} {list(self.candidates[name].shape)} ".encode())
            digest.update(self.candidates[name].flatten().numpy().data)
        digest.update(json.dumps(self.types).encode() if self.types else b"")
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write vocabularies and splits as Parquet, and candidates and types if there are any, to a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self.entities.save(folder / "entities.parquet")
        self.relations.save(folder / "relations.parquet")
        for split in SPLITS:
            columns = dict(zip(("head", "relation", "tail"), self.split(split).T.contiguous().numpy(), strict=True))
            with written_whole(folder / f"{split}.parquet") as part:
                pq.write_table(pa.table(columns), part, compression="zstd")
        if self.candidates:
            write_tensors(folder / "negatives.safetensors", self.candidates)
        if self.types:
            write_json(folder / "types.json", self.types)

    @classmethod
    def load(cls, folder: Path, name: str) -> Graph:
        """Return the graph that `save` wrote to a folder."""
        splits = []
        for split in SPLITS:
            table = pq.read_table(folder / f"{split}.parquet")
            columns = [table[c].to_numpy() for c in ("head", "relation", "tail")]
            splits.append(torch.from_numpy(np.stack(columns, axis=1)))
        entities = Vocabulary.load(folder / "entities.parquet", "entity")
        relations = Vocabulary.load(folder / "relations.parquet", "relation")
        tensors, types = folder / "negatives.safetensors", folder / "types.json"
        return cls(
            name,
            entities,
            relations,
            *splits,
            candidates=load_file(tensors) if tensors.exists() else {},  # memory-mapped, so read on demand
            types=json.loads(types.read_text(encoding="utf-8")) if types.exists() else {},
        )
