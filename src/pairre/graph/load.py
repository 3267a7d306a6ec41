"""Load a graph from a file of triples, a folder of splits, the folder of a run, or a name."""

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
    """Return the graph of a file of triples, of a folder with train/valid/test, or of a name.

    A name is `atlas`, the bundled graph, or a public benchmark such as `fb15k-237`. `columns` selects head, relation
    and tail by title or by number from 1; `header` and `delimiter` are detected if they are None. A single file is
    split at random into the fractions `split` by `seed`.
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
    _warn_of_unseen(graph)
    return graph


def _from_file(path: Path, name: str, layout: Layout, fractions: tuple[float, float, float], seed: int) -> Graph:
    entities, relations, (every_triple,) = _encode([read_triples(path, layout)], path)
    triples = distinct(every_triple, len(entities), len(relations))
    if num_repeated := len(every_triple) - len(triples):
        log.warning("%s: %s repeated triples left out before splitting", path, f"{num_repeated:,}")
    splits = split_triples(triples, len(entities), len(relations), fractions, seed)
    num_wanted = sum(num_held_out(len(triples), fractions))
    num_found = len(splits["valid"]) + len(splits["test"])
    if num_found < num_wanted:
        log.warning(
            "%s: %s triples held out instead of %s, so that train has every entity and relation",
            *(path, f"{num_found:,}", f"{num_wanted:,}"),
        )
    return Graph(name, entities, relations, *(torch.from_numpy(splits[s]) for s in SPLITS))


def _from_folder(folder: Path, name: str, layout: Layout) -> Graph:
    files = {split: _find_split(folder, names) for split, names in _SPLIT_NAMES.items()}
    if files["train"] is None:
        raise GraphError(f"{folder}: no train file in this folder (train.tsv, train.csv, train.nt.gz, …)")
    present = {split: file for split, file in files.items() if file is not None}
    entities, relations, encoded = _encode([read_triples(file, layout) for file in present.values()], folder)
    splits = dict.fromkeys(SPLITS, np.empty((0, 3), np.int32)) | dict(zip(present, encoded, strict=True))
    graph = Graph(name, entities, relations, *(torch.from_numpy(splits[s]) for s in SPLITS))
    _warn_of_unseen(graph)
    return graph


def _find_split(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the file of a split in a folder, or None."""
    found = [
        file
        for file in sorted(folder.iterdir())
        if file.is_file() and file.name.split(".")[0].lower() in names and split_ending(file)[0] in endings()
    ]
    if len(found) > 1:
        raise GraphError(f"{folder}: two files for one split: {found[0].name} and {found[1].name}; keep one")
    return found[0] if found else None


def _warn_of_unseen(graph: Graph) -> None:
    """Log how many held-out triples have an entity or a relation that does not occur in train."""
    in_train_entity = torch.zeros(graph.num_entities, dtype=torch.bool)
    in_train_entity[graph.train[:, [0, 2]].flatten().long()] = True
    in_train_relation = torch.zeros(graph.num_relations, dtype=torch.bool)
    in_train_relation[graph.train[:, 1].long()] = True
    for split, triples in (("valid", graph.valid.long()), ("test", graph.test.long())):
        head, relation, tail = triples.T
        num_unseen = int((~(in_train_entity[head] & in_train_entity[tail] & in_train_relation[relation])).sum())
        if num_unseen:
            log.warning(
                "%s: %s of %s %s triples have an entity or relation that train never shows; kept, but scored by guess",
                *(graph.name, f"{num_unseen:,}", f"{len(triples):,}", split),
            )


def _encode(files: list[TripleColumns], path: Path) -> tuple[Vocabulary, Vocabulary, list[np.ndarray]]:
    """Return the vocabularies of all files and the id triples of each; ids follow the order of first appearance."""
    if num_literals := sum(file.num_literals for file in files):
        log.warning(
            "%s: %s triples with a literal skipped (only links between entities are learnt)", path, f"{num_literals:,}"
        )
    entities, entity_ids = _unify([column for file in files for column in (file.head, file.tail)], "entity")
    relations, relation_ids = _unify([file.relation for file in files], "relation")
    members = zip(entity_ids[::2], relation_ids, entity_ids[1::2], strict=True)
    return entities, relations, [np.stack(ids, axis=1) for ids in members]


def _unify(columns: list[pa.ChunkedArray], item: str) -> tuple[Vocabulary, list[np.ndarray]]:
    """Return one vocabulary for several encoded columns, and the ids of each column in it."""
    merged = pa.chunked_array([chunk for c in columns for chunk in c.chunks]).unify_dictionaries()
    ids = np.concatenate([chunk.indices.to_numpy() for chunk in merged.chunks])
    names = merged.chunk(0).dictionary
    return Vocabulary(names, item), np.split(ids, np.cumsum([len(c) for c in columns])[:-1])
