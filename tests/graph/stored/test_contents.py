"""Values that would lead out of another array are refused, even where the checksums fit."""

import json

import numpy as np
import pytest

import pairre
from pairre.graph.ingest.ingest import ingest
from pairre.graph.stored.files import StoredFiles
from pairre.support.errors import GraphError

pytest.importorskip("duckdb")


@pytest.fixture
def folder(tmp_path):
    rows = [f"e{i * 7 % 40}\tr{i % 3}\te{i * 11 % 40}\n" for i in range(200)]
    (tmp_path / "t.tsv").write_text("".join(rows))
    return ingest(tmp_path / "t.tsv", tmp_path / "graph")


def change(folder, name, position, value):
    """Change a number of an array, and the checksums with it."""
    array = np.load(folder / f"{name}.npy")
    array.flat[position] = value
    np.save(folder / f"{name}.npy", array)
    about = json.loads((folder / "graph.json").read_text())
    StoredFiles.describe(folder, {key: value for key, value in about.items() if key not in ("checksum", "files")})


@pytest.mark.parametrize(
    ("name", "position", "value", "message"),
    [
        ("train", 0, 40, "an id without a name"),
        ("train", 1, 3, "an id without a name"),
        ("test", 2, -1, "an id without a name"),
        ("known-tails-members", 5, 2**31 - 1, "an id without a name"),
        ("train-heads-starts", 3, 10**9, "do not ascend"),
        ("train-heads-starts", -1, 10**9, "does not fit|above"),
        ("known-heads-pairs", -1, 10**12, "above"),
        ("known-heads-pairs", 1, 0, "do not ascend"),
        ("entities-ends", 2, 10**9, "do not ascend"),
        ("entities-text", 0, 255, "not UTF-8"),
        ("relations-buckets", 1, 9, "do not ascend|above"),
    ],
)
def test_crafted_values(folder, name, position, value, message):
    pairre.load_graph(folder)
    change(folder, name, position, value)
    with pytest.raises(GraphError, match=rf"{name}\.npy: damaged: .*({message})"):
        pairre.load_graph(folder)
