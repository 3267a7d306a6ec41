"""Load a graph from a file of triples, a folder of splits, the folder of a run, a name, or an object in memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from pairre.graph.annotation_files import with_files_of, with_labels, with_types
from pairre.graph.assemble import graph_of_splits, split_graph, warn_of_unseen
from pairre.graph.benchmarks import find, locate
from pairre.graph.benchmarks.ogb import load_ogb
from pairre.graph.formats import Layout, TripleColumns, endings, read_triples
from pairre.graph.formats.registry import HeaderQuestion
from pairre.graph.graph import SPLITS, Graph, Split
from pairre.graph.headers import read_files
from pairre.graph.sources import read_source, with_weights
from pairre.graph.sparql import read_sparql, source_name
from pairre.graph.split import DEFAULT_FRACTIONS, SPLIT_NAMES, check_fractions
from pairre.graph.stored.load import is_stored, load_stored
from pairre.graph.streams import split_ending
from pairre.support.errors import GraphError
from pairre.support.files import checksum_faults, read_checked_json
from pairre.support.memory import available_bytes, readable_bytes
from pairre.support.reading import file_fault, path_fault, read_text, shown

log = logging.getLogger("pairre")
_MEMORY_PER_BYTE = 2.5  # of a text file, with the index; more if it is compressed or its names are short
_UNNAMED = "graph"  # the name of a graph from memory


def load_graph(
    source: Any = None,
    *,
    columns: Sequence[str | int] | None = None,
    header: bool | HeaderQuestion | None = None,
    delimiter: str | None = None,
    weights: str | int | Sequence[float] | np.ndarray | None = None,
    split: tuple[float, float, float] = DEFAULT_FRACTIONS,
    seed: int = 0,
    unverified: bool = False,
    name: str | None = None,
    labels: str | Path | Sequence[str | Path] = (),
    types: str | Path | None = None,
    language: str = "en",
    only: Sequence[str] = (),
    exclude: Sequence[str] = (),
    keep_blank: bool = False,
    sparql: str | Path | None = None,
    query: str | Path | None = None,
) -> Graph:
    """Return the graph of a file of triples, of a folder with train/valid/test, of a name, or of an object in memory.

    A name is `atlas`, the bundled graph, or a public benchmark such as `fb15k-237`. An object is a table (pandas,
    Polars, pyarrow), an array [N, 3] or a list of triples, a directed NetworkX graph, PyG's `HeteroData`, or a dict of
    such objects or files by split (`{"train": …, "valid": …, "test": …}`). `name` is what the graph is called.

    `columns` selects head, relation and tail by title or by number from 1; `header` and `delimiter` are detected if
    they are None. `header` may be a function that is asked about a doubtful first row. `weights` selects the column of
    weights, which without it is one titled `weight`; "none" leaves that alone. For an object it may also be a number
    for each triple. A single file or object is split at random into the fractions `split` by `seed`; a graph that has
    splits of its own is refused with others. `unverified` permits the download of a benchmark of which no checksums
    are known.

    `labels` are files of two columns, name and label, and `types` is one of entity and type; a folder of splits may
    have files `labels`, `entity-labels`, `relation-labels` and `types` of its own. RDF has labels (in `language` if
    possible) and types in it; its blank nodes and lists are skipped unless `keep_blank` is set. Relations in `exclude`
    are not read, or all but those in `only`.

    Instead of a `source`, `sparql` is the address of an endpoint or the folder of a pyoxigraph store, and `query` the
    text of a query, or the path of a file with it: a SELECT of ?head ?relation ?tail (or ?s ?p ?o), or a CONSTRUCT.
    """
    picked = None if columns is None else tuple(str(column) for column in columns)
    column = str(weights) if isinstance(weights, str | int) else None
    layout = Layout(
        *(picked, header, delimiter, language, keep_blank, _several(only), _several(exclude)), weights=column
    )
    check_fractions(split)
    if sparql is not None:
        if weights is not None:
            raise GraphError("weights: a query has no column of them")
        graph = _from_query(source, str(sparql), query, layout, split, seed)
    elif source is None or query is not None:
        raise GraphError("a graph needs a source, or an endpoint (sparql) with a query")
    elif isinstance(source, str | os.PathLike):
        if weights is not None and column is None:
            raise GraphError("weights: the title or the number of a column expected, as the triples come from a file")
        graph = _from_path(Path(source), layout, split, seed, unverified)
    else:
        if (header is not None or delimiter is not None) and not isinstance(source, Mapping):
            raise GraphError("header and delimiter are for files of text; leave them out")
        given = None if weights is None or column else weights
        graph = _from_object(source, layout, given, split, seed)
    for file in [labels] if isinstance(labels, str | Path) else labels:
        graph = with_labels(graph, Path(file))
    graph = graph if types is None else with_types(graph, Path(types))
    return graph if name is None else replace(graph, name=name)


def _from_path(path: Path, layout: Layout, split: tuple[float, float, float], seed: int, unverified: bool) -> Graph:
    if fault := path_fault(path):
        raise GraphError(f"{shown(path)}: {fault}")
    try:
        return _load(path, layout, split, seed, unverified)
    except OSError as error:
        raise GraphError(f"{shown(path)}: cannot be read: {error.strerror or error}") from error


def _from_query(
    source: object,
    sparql: str,
    query: str | Path | None,
    layout: Layout,
    fractions: tuple[float, float, float],
    seed: int,
) -> Graph:
    """Return the graph of the triples that a query gives."""
    if source is not None or query is None:
        raise GraphError("an endpoint (sparql) needs a query, and no other source")
    text = read_text(query, GraphError) if isinstance(query, Path) else query
    return split_graph(read_sparql(sparql, text, layout), layout, shown(sparql), source_name(sparql), fractions, seed)


def _several(names: Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _from_object(source: Any, layout: Layout, weights: Any, fractions: tuple[float, float, float], seed: int) -> Graph:
    if not isinstance(source, Mapping):
        columns = with_weights(read_source(source, layout), weights)
        return split_graph(columns, layout, _UNNAMED, _UNNAMED, fractions, seed)
    _check_no_split(Path(_UNNAMED), fractions, seed)
    if weights is not None:
        raise GraphError("weights: the title or the number of a column expected for several splits")
    parts: dict[Split, TripleColumns] = {}
    files: dict[Split, Path] = {}
    for key, part in source.items():
        found = [split for split, names in zip(SPLITS, SPLIT_NAMES.values(), strict=True) if str(key).lower() in names]
        if not found or found[0] in parts or found[0] in files:
            raise GraphError(f"split '{shown(key)}': train, valid and test expected, each once")
        if isinstance(part, str | os.PathLike):
            files[found[0]] = Path(part)
        else:
            parts[found[0]] = read_source(part, layout)
    parts |= read_files(files, layout, parts.values())
    return graph_of_splits({split: parts[split] for split in SPLITS if split in parts}, layout, _UNNAMED, _UNNAMED)


def _load(path: Path, layout: Layout, split: tuple[float, float, float], seed: int, unverified: bool) -> Graph:
    if path.is_file():
        _warn_of_size(path)
        return split_graph(read_files({"": path}, layout)[""], layout, path, path.name.split(".")[0], split, seed)
    if path.is_dir():
        _check_no_split(path, split, seed)
        path = path / "graph" if (path / "run.json").is_file() else path
        if is_stored(path) or (path / "entities.parquet").is_file():
            _check_no_weights(path, layout)
            _check_no_selection(path, layout)
            return _from_saved(path)
        return _from_folder(path, path.resolve().name, layout)
    if path.suffix or len(path.parts) > 1 or os.path.lexists(path):
        fault = file_fault(path) or "no such file"
        raise GraphError(f"{shown(path)}: {fault.replace('no such file', 'no such file or folder')}")
    _check_no_weights(path, layout)
    if str(path) == "atlas":
        with resources.as_file(resources.files("pairre.graph") / "atlas" / "atlas.tsv") as file:
            plain = replace(layout, header=False, columns=None, delimiter=None)
            return split_graph(read_triples(file, plain), plain, file, "atlas", split, seed)
    benchmark = find(str(path))
    _check_no_split(path, split, seed)
    if not benchmark.from_ogb:
        plain = replace(layout, header=None, columns=None, delimiter=None)
        return _from_folder(locate(str(path), unverified=unverified), str(path), plain)
    _check_no_selection(path, layout)
    graph = load_ogb(benchmark, unverified=unverified)
    warn_of_unseen(graph)
    return graph


def _from_saved(folder: Path) -> Graph:
    """Return the graph of a run folder, compared with what its run.json says of it, or one that was ingested."""
    described = folder.parent / "run.json"
    of_run = read_checked_json(described, required=False) if folder.name == "graph" and described.is_file() else {}
    if isinstance(expected := of_run.get("files"), dict):
        checksums = {name: [checksum] for name, checksum in expected.items() if name.startswith("graph/")}
        present = [f"graph/{file.name}" for file in folder.iterdir() if file.is_file()]
        for fault in checksum_faults(folder.parent, checksums, present):
            raise GraphError(fault)
    graph = load_stored(folder, verify=True) if is_stored(folder) else Graph.load(folder, folder.resolve().parent.name)
    if of_run and "files" not in of_run and graph.fingerprint != of_run.get("fingerprint"):
        raise GraphError(f"{folder}: damaged: it is not the graph that the run was trained on")  # a run of format 1
    return graph


def _warn_of_size(path: Path) -> None:
    """Log that a file may not fit into memory, in which a graph is larger than its text."""
    needed, free = _MEMORY_PER_BYTE * path.stat().st_size, available_bytes()
    if free is not None and needed > free:
        log.warning(
            "%s: about %s of memory may be needed to read it, and %s are free; pairre ingest reads it within a limit",
            *(path, readable_bytes(needed), readable_bytes(free)),
        )


def _check_no_split(path: Path, split: tuple[float, float, float], seed: int) -> None:
    """Refuse fractions and a seed for a graph that is not split here, because they would have no effect."""
    if tuple(split) != DEFAULT_FRACTIONS or seed:
        raise GraphError(f"{path}: --split and --split-seed are for a single file; this graph has its own splits")


def _check_no_weights(path: Path, layout: Layout) -> None:
    if layout.weights is not None:
        raise GraphError(f"{path}: --weights {layout.weights} is for files of triples; this graph has no such columns")


def _check_no_selection(path: Path, layout: Layout) -> None:
    """Refuse a choice of relations for a graph that is not read from files of triples."""
    if layout.only or layout.exclude:
        raise GraphError(f"{path}: --only and --exclude are for files of triples")


def _from_folder(folder: Path, name: str, layout: Layout) -> Graph:
    files = {split: _find_split(folder, names) for split, names in zip(SPLITS, SPLIT_NAMES.values(), strict=True)}
    if files["train"] is None:
        raise GraphError(f"{folder}: no train file in this folder (train.tsv, train.csv, train.nt.gz, …)")
    present = {split: file for split, file in files.items() if file is not None}
    return with_files_of(graph_of_splits(read_files(present, layout), layout, folder, name), folder)


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
