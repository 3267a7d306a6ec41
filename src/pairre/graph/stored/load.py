"""Open the folder of a graph on disk as a `Graph`, of which nothing is read before it is used."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pairre.graph.annotations import Annotations
from pairre.graph.graph import SPLITS, Graph
from pairre.graph.stored.contents import check_contents
from pairre.graph.stored.files import DESCRIPTION, StoredFiles
from pairre.graph.stored.vocabulary import StoredVocabulary
from pairre.support.errors import GraphError

_CHECKED_BYTES = 1 << 30  # of a graph that is always checked


def is_stored(folder: Path) -> bool:
    """Return whether a folder holds a graph that `pairre ingest` wrote."""
    return (folder / DESCRIPTION).is_file()


def load_stored(folder: Path, name: str | None = None, *, verify: bool = False) -> Graph:
    """Return the graph of a folder; `verify` reads all files once and compares them with their checksums.

    What the files say is checked with `verify`, and otherwise if it takes a moment: an id that is too large would have
    compiled code read whatever is behind an array.
    """
    files = StoredFiles.open(folder)
    if verify:
        for fault in files.faults():
            raise GraphError(f"{fault}; run pairre ingest again")
    entities = StoredVocabulary(folder, "entities", "entity")
    relations = StoredVocabulary(folder, "relations", "relation")
    if verify or files.num_bytes <= _CHECKED_BYTES:
        check_contents(folder, entities, relations)
    splits = [files.split(split) for split in SPLITS]
    return Graph(
        str(files.description["name"]) if name is None else name,
        entities,
        relations,
        *splits,
        annotated=partial(Annotations.load, folder, len(entities), len(relations)),
        stored=files,
    )
