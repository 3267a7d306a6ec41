"""The fingerprint of a graph on disk: that of `Graph.fingerprint`, computed from the files without mapping them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pairre.graph.split import SPLIT_NAMES
from pairre.graph.stored.arrays import num_rows, read_pieces
from pairre.graph.stored.vocabulary import vocabulary_files


def fingerprint(folder: Path) -> str:
    """Return a hash of names, ids and splits."""
    digest = hashlib.sha256()
    for item, prefix in (("entity", "entities"), ("relation", "relations")):
        files = vocabulary_files(folder, prefix)
        digest.update(f"{item} {num_rows(files['ends']) - 1} ".encode())
        for lengths in _lengths(files["ends"]):
            digest.update(lengths.astype(np.int32).data)
        for text in read_pieces(files["text"], np.uint8):
            digest.update(text.data)
    for split in SPLIT_NAMES:
        file = folder / f"{split}.npy"
        digest.update(f"{split} {num_rows(file)} ".encode())
        for triples in read_pieces(file, np.int32, 3):
            digest.update(triples.data)
    return digest.hexdigest()


def _lengths(ends: Path) -> Iterator[np.ndarray]:
    last = np.empty(0, np.int64)
    for piece in read_pieces(ends, np.int64):
        joined = np.concatenate([last, piece])
        yield np.diff(joined)
        last = joined[-1:]
