"""Knowledge graphs of the Open Graph Benchmark, read by its own loader: names, entity types, the candidates it gives.

Looked up as `$PAIRRE_DATA/ogbl_…` (trusted as it is), then in the cache, where the loader puts what it downloads. Where
ids are counted afresh for each entity type, the types follow one another in one vocabulary, as `type:name`.
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

from pairre.graph.benchmark_table import Benchmark
from pairre.graph.graph import SPLITS, Graph
from pairre.graph.vocabulary import Vocabulary
from pairre.support.errors import DownloadError, GraphError, MissingExtraError
from pairre.support.files import cache_folder

_TYPED = "_entidx2name.csv.gz"  # how the file of an entity type ends
_DATA = {  # what a pickled NumPy array is made of; NumPy 1, which wrote the published files, said numpy.core
    ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}


class _Arrays(pickle.Unpickler):
    """Rebuilds NumPy arrays, and nothing else that a pickle could ask for."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _DATA:
            raise pickle.UnpicklingError(f"{module}.{name} in a file of arrays")
        return _DATA[module, name]


def load_ogb(benchmark: Benchmark) -> Graph:
    """Read one of OGB's knowledge graphs, fetching it if there is no copy."""
    name = benchmark.name.replace("-", "_")
    data = os.environ.get("PAIRRE_DATA") or ""
    trusted = bool(data) and Path(data, name).is_dir()
    folder = Path(data, name) if trusted else cache_folder() / "ogb" / name
    splits = _read(benchmark.name, folder)
    mapping = folder / "mapping"
    if "head_type" in splits["train"]:
        files = {file.name.removesuffix(_TYPED): file for file in sorted(mapping.glob(f"*{_TYPED}"))}
        names = [_names(file, f"{kind}:") for kind, file in files.items()]
        used = {kind for part in splits.values() for side in ("head", "tail") for kind in part[f"{side}_type"]}
        if missing := used - files.keys():
            raise GraphError(f"{mapping}: no names of type {', '.join(sorted(missing))}")
        starts = np.cumsum([0, *map(len, names)]).tolist()
        types, relations = dict(zip(files, starts, strict=False)), _names(mapping / "relidx2relname.csv.gz")
    else:
        names, types = [_names(mapping / "nodeidx2entityid.csv.gz")], {}
        relations = _names(mapping / "reltype2relid.csv.gz")
    triples, candidates = [], {}
    for split in SPLITS:
        part = splits.pop(split)  # what is put together anew need not stay
        head, tail = (_ids(part, side, side, types) for side in ("head", "tail"))
        triples.append(torch.stack([head, _int32(part["relation"]), tail], 1))
        for side in ("head", "tail"):
            if f"{side}_neg" in part:
                candidates[f"{split}.{side}"] = _ids(part, side, f"{side}_neg", types)
    vocabularies = Vocabulary(pa.concat_arrays(names), "entity"), Vocabulary(relations, "relation")
    graph = Graph(benchmark.name, *vocabularies, *triples, candidates=candidates, types=types)
    _check(graph, folder, None if trusted else benchmark)
    return graph


def _read(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The splits of a benchmark, which OGB's loader fetches where there is no such folder."""
    advice = f"try again, or unzip a copy and point PAIRRE_DATA at the folder that holds it as {folder.name}"
    loader = _loader(name)
    try:
        with redirect_stdout(sys.stderr):
            kind = loader(name=name, root=str(folder.parent)).meta_info["split"]
    except (OSError, RuntimeError, zipfile.BadZipFile) as error:
        raise DownloadError(f"{name}: {folder} is missing, and ogb cannot fetch it ({error}); {advice}") from error
    except (SystemExit, EOFError) as error:  # it asks on the terminal before a large download, and leaves on a no
        raise DownloadError(f"{name}: {folder} is missing, and the download was declined; {advice}") from error
    arrays = SimpleNamespace(__name__="arrays", Unpickler=_Arrays, load=lambda f, **more: _Arrays(f, **more).load())
    splits: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        file = folder / "split" / kind / f"{split}.pt"
        try:
            splits[split] = _narrow(torch.load(file, weights_only=False, pickle_module=arrays))
        except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError) as error:
            raise GraphError(f"{file}: damaged: {error}") from error
    return splits


def _narrow(part: dict[str, Any]) -> dict[str, Any]:
    """A split with int32 for int64, one array at a time, before the next split is read: candidates take gigabytes."""
    for key in part:
        if isinstance(part[key], np.ndarray) and part[key].dtype == np.int64:
            part[key] = _int32(part[key])
    return part


def _loader(name: str) -> Any:
    """OGB's loader, which fetches but reads no edges: the splits have them again."""
    unasked = "outdated" not in sys.modules
    if unasked:  # else ogb asks the network for its newest version, and the process waits for that when it ends
        sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        from ogb.linkproppred import LinkPropPredDataset
    except ImportError:
        raise MissingExtraError(name, "ogb") from None
    finally:
        if unasked:
            del sys.modules["outdated"]

    class Loader(LinkPropPredDataset):  # type: ignore[misc]
        def pre_process(self) -> None:
            if not Path(self.root, "split").is_dir():
                super().pre_process()

    return Loader


def _names(file: Path, prefix: str = "") -> pa.Array:
    """Names in the order of their ids, from a table of id and name with a header."""
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
    """Ids on a side of a split's triples, [N] or [N, K], counted through all types."""
    ids = _int32(part[values])
    if not types:
        return ids
    first = torch.tensor([types[kind] for kind in part[f"{side}_type"]], dtype=torch.int32)
    return ids + (first if ids.dim() == 1 else first[:, None])


def _int32(values: Any) -> Tensor:
    return torch.as_tensor(values).to(torch.int32)


def _check(graph: Graph, where: Path, benchmark: Benchmark | None) -> None:
    """Refuse ids without a name, and what was fetched unless it has the published sizes."""
    triples = torch.cat([graph.split(split) for split in SPLITS])
    relations, entities = triples[:, 1], [triples[:, 0], triples[:, 2], *graph.candidates.values()]
    for kind, size, all_ids in (
        ("relation", graph.num_relations, [relations]),
        ("entity", graph.num_entities, entities),
    ):
        if any(ids.numel() and not 0 <= ids.min() <= ids.max() < size for ids in all_ids):
            raise GraphError(f"{where}: a split has an id without a name: {size:,} {kind} names are in mapping")
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
