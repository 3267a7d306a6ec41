"""What `GRAPH` may be: a file of triples, a folder of splits, or a name; all end as one `Graph`."""

from __future__ import annotations

import logging
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from pairre.graph.benchmarks import find, load_ogb, locate
from pairre.graph.formats import Layout, TripleColumns, endings, read_triples
from pairre.graph.graph import SPLITS, Graph, Split
from pairre.graph.split import DEFAULT_FRACTIONS, distinct, num_held_out, split_triples
from pairre.graph.streams import split_ending
from pairre.graph.vocabulary import Vocabulary
from pairre.support.errors import GraphError

log = logging.getLogger("pairre")
_SPLIT_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing"),
}


def load_graph(
    source: str | Path,
    *,
    columns: tuple[str, str, str] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    split: tuple[float, float, float] = DEFAULT_FRACTIONS,
    seed: int = 0,
) -> Graph:
    """Load a graph from a file of triples, a folder with train/valid/test, or a name such as `atlas` or `fb15k-237`.

    `columns` picks head, relation and tail by name or by number from 1; `header` and `delimiter` are found out from the
    file when not given. A single file is split by `seed` into the shares `split`.
    """
    layout = Layout(columns, header, delimiter)
    path = Path(source)
    try:
        return _load(path, layout, split, seed)
    except OSError as error:
        raise GraphError(f"{source}: cannot be read: {error.strerror or error}") from error


def _load(path: Path, layout: Layout, split: tuple[float, float, float], seed: int) -> Graph:
    if (path / "entities.parquet").is_file():
        return Graph.load(path, path.resolve().parent.name)  # the graph of a run folder
    if path.is_dir():
        return _from_folder(path, path.resolve().name, layout)
    if path.is_file():
        return _from_file(path, path.name.split(".")[0], layout, split, seed)
    if path.suffix or len(path.parts) > 1:
        raise GraphError(f"{path}: no such file or folder")
    if str(path) == "atlas":
        with resources.as_file(resources.files("pairre.graph") / "atlas" / "atlas.tsv") as file:
            return _from_file(file, "atlas", Layout(header=False), split, seed)
    benchmark = find(str(path))
    if not benchmark.from_ogb:
        return _from_folder(locate(str(path)), str(path), Layout())
    graph = load_ogb(benchmark)
    _warn_of_unseen(graph.name, {s: graph.split(s) for s in SPLITS}, graph.num_entities, graph.num_relations)
    return graph


def _from_file(path: Path, name: str, layout: Layout, fractions: tuple[float, float, float], seed: int) -> Graph:
    entities, relations, encoded = _encode({"all": read_triples(path, layout)}, path)
    triples = distinct(encoded["all"], len(entities), len(relations))
    if num_repeated := len(encoded["all"]) - len(triples):
        log.warning("%s: %s repeated triples left out before splitting", path, f"{num_repeated:,}")
    splits = split_triples(triples, len(entities), len(relations), fractions, seed)
    asked = sum(num_held_out(len(triples), fractions))
    held = len(splits["valid"]) + len(splits["test"])
    if held < asked:
        log.warning(
            "%s: %s triples held out instead of %s, so that train has every entity and relation",
            *(path, f"{held:,}", f"{asked:,}"),
        )
    return Graph(name, entities, relations, *(torch.from_numpy(splits[s]) for s in SPLITS))


def _from_folder(folder: Path, name: str, layout: Layout) -> Graph:
    files = {split: _find_split(folder, names) for split, names in _SPLIT_NAMES.items()}
    if files["train"] is None:
        raise GraphError(f"{folder}: no train file in this folder (train.tsv, train.csv, train.nt.gz, …)")
    found = {split: file for split, file in files.items() if file is not None}
    entities, relations, encoded = _encode({s: read_triples(f, layout) for s, f in found.items()}, folder)
    splits = {s: torch.from_numpy(encoded.get(s, np.empty((0, 3), np.int32))) for s in SPLITS}
    _warn_of_unseen(name, splits, len(entities), len(relations))
    return Graph(name, entities, relations, *(splits[s] for s in SPLITS))


def _find_split(folder: Path, names: tuple[str, ...]) -> Path | None:
    found = [
        file
        for file in sorted(folder.iterdir())
        if file.is_file() and file.name.split(".")[0].lower() in names and split_ending(file)[0] in endings()
    ]
    if len(found) > 1:
        raise GraphError(f"{folder}: two files for one split: {found[0].name} and {found[1].name}; keep one")
    return found[0] if found else None


def _warn_of_unseen(name: str, splits: dict[Split, torch.Tensor], num_entities: int, num_relations: int) -> None:
    seen_entity, seen_relation = (
        torch.zeros(num_entities, dtype=torch.bool),
        torch.zeros(num_relations, dtype=torch.bool),
    )
    seen_entity[splits["train"][:, [0, 2]].flatten().long()] = True
    seen_relation[splits["train"][:, 1].long()] = True
    for split in ("valid", "test"):
        triples = splits[split].long()
        unseen = ~(seen_entity[triples[:, 0]] & seen_entity[triples[:, 2]] & seen_relation[triples[:, 1]])
        if num_unseen := int(unseen.sum()):
            log.warning(
                "%s: %s of %s %s triples have an entity or relation that train never shows; kept, but scored by guess",
                *(name, f"{num_unseen:,}", f"{len(triples):,}", split),
            )


def _encode(files: dict[str, TripleColumns], path: Path) -> tuple[Vocabulary, Vocabulary, dict[str, np.ndarray]]:
    """Names → dense ids, in order of first sight."""
    if num_literals := sum(f.num_literals for f in files.values()):
        log.warning(
            "%s: %s triples with a literal skipped (only links between entities are learnt)", path, f"{num_literals:,}"
        )
    ends = [column for file in files.values() for column in (file.head, file.tail)]
    entities, entity_ids = _unify(ends, "entity")
    relations, relation_ids = _unify([file.relation for file in files.values()], "relation")
    encoded = {}
    for i, split in enumerate(files):
        encoded[split] = np.stack([entity_ids[2 * i], relation_ids[i], entity_ids[2 * i + 1]], axis=1)
    return entities, relations, encoded


def _unify(columns: list[pa.ChunkedArray], kind: str) -> tuple[Vocabulary, list[np.ndarray]]:
    merged = pa.chunked_array([chunk for c in columns for chunk in c.chunks]).unify_dictionaries()
    ids = np.concatenate([chunk.indices.to_numpy() for chunk in merged.chunks])
    names = merged.chunk(0).dictionary
    return Vocabulary(names, kind), np.split(ids, np.cumsum([len(c) for c in columns])[:-1])
