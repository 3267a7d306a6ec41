"""Knowledge graphs of the Open Graph Benchmark, read by its own loader: names, entity types and fixed candidates.

A copy is looked for as `$PAIRRE_DATA/ogbl_…`, which is trusted as it is, and then in the cache, where the loader puts
its downloads. If the ids of each entity type start at 0, the types are put one after another into one vocabulary with
names `type:name`.
"""

from __future__ import annotations

import os
import pickle
import re
import struct
import sys
import zipfile
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from pyarrow import csv
from torch import Tensor

from pairre.graph.benchmarks.entry import Benchmark
from pairre.graph.benchmarks.obtain import refuse_unverifiable
from pairre.graph.graph import SPLITS, Graph
from pairre.graph.vocabulary import Vocabulary
from pairre.support.errors import DownloadError, GraphError, MissingExtraError
from pairre.support.files import cache_folder
from pairre.support.reading import shortened

_TYPE_ENDING = "_entidx2name.csv.gz"  # of the file with the names of an entity type
_DAMAGED = (  # what unpickling bytes at random can raise
    *(pickle.UnpicklingError, RuntimeError, ValueError, EOFError, TypeError, AttributeError, LookupError),
    *(MemoryError, OverflowError, ImportError, AssertionError, zipfile.BadZipFile, struct.error, OSError, SystemError),
)
_SMALL = 1 << 24  # bytes of a file


class _DataType:
    """Stands for a NumPy data type in a file: whole numbers only."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or not re.fullmatch("[iu][1248]", code):
            raise pickle.UnpicklingError(f"an array of {shortened(code)}, not of whole numbers")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        self.dtype = self.dtype.newbyteorder(">" if state[1] == ">" else "<")


class _Array:
    """Stands for a NumPy array in a file. NumPy's own unpickling believes what it reads, down to a crash."""

    values: np.ndarray

    def __init__(self, *_: Any) -> None:
        """Ignore what NumPy's constructor gets, because it is replaced by the state."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, data = state
        if not isinstance(kind, _DataType) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array without a type or data")
        self.values = np.frombuffer(data, kind.dtype).reshape(shape, order="F" if is_fortran else "C")


def _latin1(text: str, encoding: str) -> bytes:
    """Return text as bytes; old pickles store the bytes of an array so."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes as {shortened(encoding)}")
    return text.encode("latin1")


_ALLOWED = {  # the parts of a pickled NumPy array; the published files were written by NumPy 1, with numpy.core
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _DataType,
    ("_codecs", "encode"): _latin1,
}


class _OnlyArrays:
    """Finds the parts of NumPy arrays for an unpickler and refuses everything else, so that a file cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} in a file of arrays")
        return _ALLOWED[module, name]


class _ArrayUnpickler(_OnlyArrays, pickle.Unpickler):
    """The unpickler for published files, whose lists of types have millions of names."""


class _SmallArrayUnpickler(_OnlyArrays, pickle._Unpickler):
    """The unpickler in Python: slow, but a few bytes cannot make it reserve gigabytes for the numbers of objects."""


def _pickle_module(unpickler: Any) -> Any:
    """Return what `torch.load` expects of a pickle module."""
    load = lambda file, **options: unpickler(file, **options).load()  # noqa: E731
    return SimpleNamespace(__name__="arrays", Unpickler=unpickler, load=load)


_ARRAY_PICKLE = {False: _pickle_module(_ArrayUnpickler), True: _pickle_module(_SmallArrayUnpickler)}  # by "is small"


def load_ogb(benchmark: Benchmark, *, unverified: bool = False) -> Graph:
    """Return a knowledge graph of OGB; download it if there is no copy and `unverified` permits it.

    OGB publishes no checksums, so what is downloaded can only be held against the published sizes.
    """
    name = benchmark.name.replace("-", "_")
    data = os.environ.get("PAIRRE_DATA") or ""
    trusted = bool(data) and Path(data, name).is_dir()
    folder = Path(data, name) if trusted else cache_folder() / "ogb" / name
    if not folder.is_dir() and not unverified:
        refuse_unverifiable(benchmark)
    splits = _read_splits(benchmark.name, folder)
    mapping = folder / "mapping"
    if "head_type" in splits["train"]:
        files = {file.name.removesuffix(_TYPE_ENDING): file for file in sorted(mapping.glob(f"*{_TYPE_ENDING}"))}
        names = [_names(file, f"{entity_type}:") for entity_type, file in files.items()]
        used = {name for part in splits.values() for side in ("head", "tail") for name in part[f"{side}_type"]}
        if missing := used - files.keys():
            raise GraphError(f"{mapping}: no names of type {', '.join(sorted(missing))}")
        starts = np.cumsum([0, *map(len, names)]).tolist()
        types, relations = dict(zip(files, starts, strict=False)), _names(mapping / "relidx2relname.csv.gz")
    else:
        names, types = [_names(mapping / "nodeidx2entityid.csv.gz")], {}
        relations = _names(mapping / "reltype2relid.csv.gz")
    triples, candidates = [], {}
    for split in SPLITS:
        part = splits.pop(split)  # so that its arrays are freed when they have been converted
        head, tail = (_ids(part, side, side, types) for side in ("head", "tail"))
        triples.append(torch.stack([head, _int32(part["relation"]), tail], 1))
        for side in ("head", "tail"):
            if f"{side}_neg" in part:
                candidates[f"{split}.{side}"] = _ids(part, side, f"{side}_neg", types)
    vocabularies = Vocabulary(pa.concat_arrays(names), "entity"), Vocabulary(relations, "relation")
    try:
        graph = Graph(benchmark.name, *vocabularies, *triples, candidates=candidates, types=types)
    except GraphError as error:
        raise GraphError(f"{folder}: a split has an id without a name in mapping: {error}") from error
    _check(graph, folder, None if trusted else benchmark)
    return graph


def _read_splits(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the arrays of each split; OGB's loader downloads them if the folder does not exist."""
    advice = f"try again, or unzip a copy and point PAIRRE_DATA at the folder that holds it as {folder.name}"
    loader = _loader(name)
    if (folder / "processed" / "data_processed").exists() and not (folder / "split").is_dir():
        raise GraphError(f"{folder}: no folder split in it; {advice}")  # before ogb unpickles what else is there
    try:
        with redirect_stdout(sys.stderr):
            split_type = loader(name=name, root=str(folder.parent)).meta_info["split"]
    except (OSError, RuntimeError, zipfile.BadZipFile) as error:
        raise DownloadError(f"{name}: {folder} is missing, and ogb cannot fetch it ({error}); {advice}") from error
    except (SystemExit, EOFError) as error:  # the loader asks on the terminal and exits on "no"
        raise DownloadError(f"{name}: {folder} is missing, and the download was declined; {advice}") from error
    return {split: read_split(folder / "split" / split_type / f"{split}.pt") for split in SPLITS}


def read_split(file: Path) -> dict[str, Any]:
    """Return the arrays of a published split by name; whatever is damaged or no array is a GraphError."""
    try:
        is_small = file.stat().st_size < _SMALL
        split = _as_int32(torch.load(file, weights_only=False, pickle_module=_ARRAY_PICKLE[is_small]))
    except _DAMAGED as error:
        raise GraphError(f"{file}: damaged: {shortened(' '.join(str(error).split()), 300)}") from error
    if not {"head", "relation", "tail"} <= split.keys():
        raise GraphError(f"{file}: damaged: no arrays of heads, relations and tails in it")
    return split


def _as_int32(part: dict[str, Any]) -> dict[str, Any]:
    """Return a split with int32 tensors, converted array by array because the candidates take gigabytes."""
    if not isinstance(part, dict):
        raise TypeError("not a table of arrays")
    for key in part:
        if isinstance(part[key], _Array):
            part[key] = torch.from_numpy(part[key].values.astype(np.int32))
    return part


def _loader(name: str) -> Any:
    """Return OGB's loader class, changed so that it downloads but does not read the edges, which the splits repeat."""
    not_imported = "outdated" not in sys.modules
    if not_imported:  # otherwise ogb asks the network for its newest version, and the process waits for the answer
        sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        from ogb.linkproppred import LinkPropPredDataset
    except ImportError:
        raise MissingExtraError(name, "ogb") from None
    finally:
        if not_imported:
            del sys.modules["outdated"]

    class Loader(LinkPropPredDataset):  # type: ignore[misc]
        def pre_process(self) -> None:
            if not Path(self.root, "split").is_dir():
                super().pre_process()

    return Loader


def _names(file: Path, prefix: str = "") -> pa.Array:
    """Return the names of a table with a header and the columns id and name, in the order of their ids."""
    columns = {"id": pa.int64(), "name": pa.string()}
    try:
        table = csv.read_csv(
            file,
            csv.ReadOptions(column_names=list(columns), skip_rows=1),
            convert_options=csv.ConvertOptions(column_types=columns),
        ).sort_by("id")
    except pa.ArrowException as error:
        raise GraphError(f"{file}: not a table of ids and names: {str(error).splitlines()[0]}") from error
    if not np.array_equal(table["id"].to_numpy(), np.arange(len(table))):
        raise GraphError(f"{file}: the ids are not 0, 1, 2, …")
    names = table["name"].combine_chunks()
    return pc.binary_join_element_wise(prefix, names, "") if prefix else names


def _ids(part: Mapping[str, Any], side: str, values: str, types: Mapping[str, int]) -> Tensor:
    """Return the ids of `part[values]`, [N] or [N, K], in the vocabulary of all types.

    The types are those of the entities on `side` of each triple.
    """
    ids = _int32(part[values])
    if not types:
        return ids
    first = torch.tensor([types[name] for name in part[f"{side}_type"]], dtype=torch.int32)
    return ids + (first if ids.dim() == 1 else first[:, None])


def _int32(values: Any) -> Tensor:
    return torch.as_tensor(values).to(torch.int32)


def _check(graph: Graph, where: Path, benchmark: Benchmark | None) -> None:
    """Raise an error if an id has no name or if a downloaded graph does not have the published sizes."""
    triples = torch.cat([graph.split(split) for split in SPLITS])
    relations, entities = triples[:, 1], [triples[:, 0], triples[:, 2], *graph.candidates.values()]
    for label, size, all_ids in (
        ("relation", graph.num_relations, [relations]),
        ("entity", graph.num_entities, entities),
    ):
        if any(ids.numel() and not 0 <= ids.min() <= ids.max() < size for ids in all_ids):
            raise GraphError(f"{where}: a split has an id without a name: {size:,} {label} names are in mapping")
    if benchmark is None:
        return
    found = {"entities": graph.num_entities, "relations": graph.num_relations}
    found |= {f"{split} triples": len(graph.split(split)) for split in SPLITS}
    published = {"entities": benchmark.num_entities, "relations": benchmark.num_relations}
    published |= {f"{split} triples": number for split, number in benchmark.num_triples.items()}
    for what, number in published.items():
        if found[what] != number:
            raise DownloadError(
                f"{where}: expected {number:,} {what}, found {found[what]:,}; not what was published: remove the folder"
            )
