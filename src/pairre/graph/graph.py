"""The graph in memory: two vocabularies and three splits of id triples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from pairre.files import written_whole
from pairre.graph.index import KnownTriples
from pairre.graph.vocabulary import Vocabulary

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

    @property
    def num_entities(self) -> int:
        """How many entities there are in all splits together."""
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """How many relations there are in all splits together."""
        return len(self.relations)

    def split(self, name: Split) -> Tensor:
        """One split by name."""
        triples: Tensor = getattr(self, name)
        return triples

    def __repr__(self) -> str:
        sizes = " / ".join(f"{len(self.split(s)):,}" for s in SPLITS)
        return f"Graph({self.name}: {self.num_entities:,} entities, {self.num_relations:,} relations, {sizes} triples)"

    @cached_property
    def known(self) -> KnownTriples:
        """Every triple of every split: what a filtered rank leaves out."""
        return KnownTriples(torch.cat([self.split(s) for s in SPLITS]), self.num_entities, self.num_relations)

    @cached_property
    def known_train(self) -> KnownTriples:
        """The triples of train alone: what training may know."""
        return KnownTriples(self.train, self.num_entities, self.num_relations)

    def names(self, triples: Tensor) -> Iterator[tuple[str, str, str]]:
        """Id triples as named ones."""
        head, relation, tail = triples.T.tolist()
        yield from zip(
            self.entities.name_list(head),
            self.relations.name_list(relation),
            self.entities.name_list(tail),
            strict=True,
        )

    @cached_property
    def fingerprint(self) -> str:
        """Equal exactly when names, ids and splits are equal: a run is resumed on its own graph only."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update(f"{vocabulary.kind} {len(vocabulary)} ".encode())
            digest.update(pc.binary_length(vocabulary.names).to_numpy().tobytes())
            for start in range(0, len(vocabulary), 1 << 16):
                digest.update("".join(vocabulary.names.slice(start, 1 << 16).to_pylist()).encode())
        for split in SPLITS:
            digest.update(f"{split} {len(self.split(split))} ".encode())
            digest.update(self.split(split).numpy().tobytes())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write vocabularies and splits as Parquet."""
        folder.mkdir(parents=True, exist_ok=True)
        self.entities.save(folder / "entities.parquet")
        self.relations.save(folder / "relations.parquet")
        for split in SPLITS:
            columns = dict(zip(("head", "relation", "tail"), self.split(split).T.contiguous().numpy(), strict=True))
            with written_whole(folder / f"{split}.parquet") as part:
                pq.write_table(pa.table(columns), part, compression="zstd")

    @classmethod
    def load(cls, folder: Path, name: str) -> Graph:
        """Read a folder written by `save`."""
        splits = []
        for split in SPLITS:
            table = pq.read_table(folder / f"{split}.parquet")
            columns = [table[c].to_numpy() for c in ("head", "relation", "tail")]
            splits.append(torch.from_numpy(np.stack(columns, axis=1)))
        entities = Vocabulary.load(folder / "entities.parquet", "entity")
        return cls(name, entities, Vocabulary.load(folder / "relations.parquet", "relation"), *splits)
