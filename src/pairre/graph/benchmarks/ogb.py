"""Knowledge graphs of the Open Graph Benchmark, read by its own loader: names, entity types and fixed candidates.

A copy is looked for as `$PAIRRE_DATA/ogbl_…`, which is trusted as it is, and then in the cache, where the loader puts
its downloads. If the ids of each entity type start at 0, the types are put one after another into one vocabulary with
names `type:name`.
"""

from __future__ import annotations

import codecs
import os
import pickle
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
from pairre.graph.graph import SPLITS, Graph
from pairre.graph.vocabulary import Vocabulary
from pairre.support.errors import DownloadError, GraphError, MissingExtraError
from pairre.support.files import cache_folder

_TYPE_ENDING = "_entidx2name.csv.gz"  # of the file with the names of an entity type
_ALLOWED = {  # the parts of a pickled NumPy array; the published files were written by NumPy 1, with numpy.core
    ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles NumPy arrays and refuses everything else, so that a file cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} in a file of arrays")
        return _ALLOWED[module, name]


_ARRAY_PICKLE = SimpleNamespace(  # what `torch.load` expects of a pickle module
    __name__="arrays",
    Unpickler=_ArrayUnpickler,
    load=lambda file, **options: _ArrayUnpickler(file, **options).load(),
)


def load_ogb(benchmark: Benchmark) -> Graph:
    """Return a knowledge graph of OGB; download it if there is no copy."""
    name = benchmark.name.replace("-", "_")
    data = os.environ.get("PAIRRE_DATA") or ""
    trusted = bool(data) and Path(data, name).is_dir()
    folder = Path(data, name) if trusted else cache_folder() / "ogb" / name
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
    graph = Graph(benchmark.name, *vocabularies, *triples, candidates=candidates, types=types)
    _check(graph, folder, None if trusted else benchmark)
    return graph


def _read_splits(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the arrays of each split; OGB's loader downloads them if the folder does not exist."""
    advice = f"try again, or unzip a copy and point PAIRRE_DATA at the folder that holds it as {folder.name}"
    loader = _loader(name)
    try:
        with redirect_stdout(sys.stderr):
            split_type = loader(name=name, root=str(folder.parent)).meta_info["split"]
    except (OSError, RuntimeError, zipfile.BadZipFile) as error:
        raise DownloadError(f"{name}: {folder} is missing, and ogb cannot fetch it ({error}); {advice}") from error
    except (SystemExit, EOFError) as error:  # the loader asks on the terminal and exits on "no"
        raise DownloadError(f"{name}: {folder} is missing, and the download was declined; {advice}") from error
    splits: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        file = folder / "split" / split_type / f"{split}.pt"
        try:
            splits[split] = _as_int32(torch.load(file, weights_only=False, pickle_module=_ARRAY_PICKLE))
        except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError) as error:
            raise GraphError(f"{file}: damaged: {error}") from error
    return splits


def _as_int32(part: dict[str, Any]) -> dict[str, Any]:
    """Return a split with int32 for int64, converted array by array because the candidates take gigabytes."""
    for key in part:
        if isinstance(part[key], np.ndarray) and part[key].dtype == np.int64:
            part[key] = _int32(part[key])
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
    except pa.ArrowInvalid as error:
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
