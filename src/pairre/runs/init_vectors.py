"""Own initial vectors of entities: read from a table of name and vector, copied into a model, stored with a run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from pairre.graph import Graph
from pairre.models import Model
from pairre.support.errors import GraphError, RecipeError
from pairre.support.reading import file_fault, shortened, shown
from pairre.support.table_files import PARQUET_FAULTS
from pairre.support.tensors import read_tensors, write_tensors

log = logging.getLogger("pairre")
_NAMED = 3  # unknown names that a warning has
VectorSource = str | Path | Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class InitVectors:
    """Rows of the entity table that training starts from, and whether they stay as they are."""

    ids: Tensor  # [N] int64, ascending
    vectors: Tensor  # [N, width] float32
    frozen: bool

    def copy_into(self, model: Model) -> None:
        """Set the rows of a new model; it brings them to what it allows, such as length 1."""
        width = model.entity.shape[1]
        if self.vectors.shape[1] != width:
            given = self.vectors.shape[1]
            needed = f"model.dim={model.dim} of {model.name} needs {width:,}"
            dim, rest = divmod(given * model.dim, width)
            advice = f"set model.dim={dim}" if not rest else f"write {width:,}"
            raise RecipeError(f"initial vectors: they have {given:,} numbers, and {needed}: {advice}")
        table = model.entity.detach()
        rows = self.vectors.to(table.device).to(table.dtype)
        if not rows.isfinite().all():
            raise RecipeError(f"initial vectors: a number is too large for model.storage={str(table.dtype)[6:]}")
        table[self.ids.to(table.device)] = model.constrain("entity", rows)

    def save(self, file: Path) -> None:
        """Write the vectors to a file of a run folder."""
        write_tensors(file, {"ids": self.ids, "vectors": self.vectors, "frozen": torch.tensor(self.frozen)})

    @classmethod
    def load(cls, file: Path) -> InitVectors:
        """Return what `save` wrote."""
        tensors, _ = read_tensors(file, verify=True, required=True)
        return cls(tensors["ids"], tensors["vectors"], bool(tensors["frozen"]))

    def equals(self, other: InitVectors | None) -> bool:
        """Return whether both are the same vectors, frozen or not alike."""
        return (
            other is not None
            and self.frozen == other.frozen
            and torch.equal(self.ids, other.ids)
            and torch.equal(self.vectors, other.vectors)
        )


def read_init_vectors(source: VectorSource, graph: Graph, frozen: bool = False) -> InitVectors:
    """Return the vectors of a Parquet file with the columns `name` and `vector`, or of a dict, for a graph's entities.

    Names that the graph lacks are left out and counted in a warning; what cannot be a vector is a GraphError.
    """
    if isinstance(source, Mapping):
        where = "initial vectors"
        try:
            names, vectors = pa.array([str(name) for name in source]), np.array(list(source.values()), np.float32)
        except (TypeError, ValueError) as error:
            raise GraphError(f"{where}: equally many numbers for each name expected ({error})") from error
    else:
        where = shown(source)
        names, vectors = _read_file(Path(source), where)
    if vectors.ndim != 2 or not vectors.size:
        raise GraphError(f"{where}: no vectors in it; the columns `name` and `vector` expected")
    finite = np.isfinite(vectors).all(1)
    if not finite.all():
        row = int(finite.argmin())
        raise GraphError(f"{where}: row {row + 1}: the vector of '{names[row]}' has a number that is not finite")
    if len(counts := names.value_counts()) < len(names):
        twice = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"]
        raise GraphError(f"{where}: '{twice}' has two vectors; one for each name expected")
    found = graph.entities.find_all(names)
    known = found.is_valid().to_numpy(zero_copy_only=False)
    _report_unknown(where, names, known, graph)
    ids = found.drop_null().to_numpy().astype(np.int64)
    order = np.argsort(ids)
    return InitVectors(torch.from_numpy(ids[order]), torch.from_numpy(vectors[known][order]), frozen)


def _report_unknown(where: str, names: pa.Array, known: np.ndarray, graph: Graph) -> None:
    if known.all():
        return
    unknown = names.filter(pa.array(~known))
    some = ", ".join(f"'{shortened(name)}'" for name in unknown[:_NAMED].to_pylist())
    if not known.any():
        raise GraphError(f"{where}: none of {len(names):,} names is an entity of {graph.name}: {some}, …")
    number = f"{len(unknown):,} of {len(names):,}"
    log.warning("%s: %s names are no entities of %s and left out: %s", where, number, graph.name, some)


def _read_file(path: Path, where: str) -> tuple[pa.Array, np.ndarray]:
    """Return the names [N] and vectors [N, width] of a Parquet file."""
    if fault := file_fault(path):
        raise GraphError(f"{where}: {fault}")
    try:
        table = pq.ParquetFile(path).read()
        table.validate(full=True)  # names may be no UTF-8
        for title in ("name", "vector"):
            if table.column_names.count(title) != 1:
                found = shortened(", ".join(table.column_names))
                raise GraphError(f"{where}: the columns `name` and `vector` expected, not {found}")
            if table[title].null_count:
                row = pc.index(pc.is_null(table[title]), True).as_py() + 1
                raise GraphError(f"{where}: row {row}: the {title} is null")
        kind = table["vector"].type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            raise GraphError(f"{where}: the column `vector` holds {kind}; a list of numbers in each row expected")
        lengths = pc.list_value_length(table["vector"]).to_numpy()
        if len(lengths) and (lengths != lengths[0]).any():
            row = int((lengths != lengths[0]).argmax())
            raise GraphError(f"{where}: row {row + 1}: {lengths[row]:,} numbers, and the first row has {lengths[0]:,}")
        values = pc.list_flatten(table["vector"]).cast(pa.float32(), safe=False)
        names = table["name"].cast(pa.string()).combine_chunks()
    except PARQUET_FAULTS as error:
        raise GraphError(f"{where}: not a table of names and vectors: {' '.join(str(error).split())}") from error
    flat = values.to_numpy()  # a null becomes NaN
    return names, flat.reshape(len(names), -1).copy() if len(names) else np.empty((0, 0), np.float32)
