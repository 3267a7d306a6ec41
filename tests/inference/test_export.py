"""Vectors that were written are read back by other libraries, or by hand, as they are in the run."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from pairre.graph import Vocabulary
from pairre.inference import export
from pairre.inference.export import FORMATS
from pairre.models import model_class
from pairre.runs import Run, vectors
from pairre.settings import Recipe
from pairre.support.errors import PairREError

ODD = ["tab\there", "line\nbreak", "New York", 'quo"te, comma', "ünï 🐍", "", "trailing ", "[/x]"]


def make_run(graph, name="pairre", **options):
    names = ODD + [f"e{i}" for i in range(len(ODD), 40)]
    graph = replace(graph, entities=Vocabulary(names, "entity"))
    model = model_class(name)(graph.num_entities, graph.num_relations, 6, **options)
    model.initialise(1.0, 3)
    return Run(graph, Recipe(), model.requires_grad_(False))


@pytest.fixture
def run(graph, monkeypatch):
    monkeypatch.setattr(vectors, "_ELEMENTS", 66)
    return make_run(graph)


def test_entity_vectors_are_those_of_the_score(run):
    found = run.entity_vectors()
    assert found.names == run.graph.entities.names.to_pylist()
    assert np.allclose(np.linalg.norm(found.array, axis=1), 1)
    expected = run.model.prepare_entities(run.model.entity, "head", None)
    assert np.array_equal(found.array, expected.numpy())
    relations = run.relation_vectors()
    assert relations.names == ["next", "previous", "beside"]
    assert np.array_equal(relations.array, run.model.relation.numpy())


def test_reciprocal_rows_follow_those_of_the_relation(graph):
    run = make_run(graph, "distmult", reciprocal=True)
    assert np.array_equal(run.relation_vectors().array, torch.cat(run.model.relation.chunk(2), 1).numpy())


@pytest.mark.parametrize("table", ["entities", "relations"])
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_read_back(run, tmp_path, name, table):
    expected = getattr(run, f"{table.removesuffix('ies').removesuffix('s')}{'y' * (table == 'entities')}_vectors")()
    counted = []
    files = export(run, tmp_path / f"out{FORMATS[name][0]}", table=table, progress=counted.append)
    assert sum(counted) == len(expected.names)
    assert sorted(tmp_path.iterdir()) == sorted(files)
    array, names = READERS[name](files)
    assert array.dtype == np.float32
    assert np.array_equal(array, expected.array)
    assert names == [ESCAPED.get(name, lambda text: text)(text) for text in expected.names]


def read_parquet(files):
    table = pq.read_table(files[0])
    assert table.schema.names == ["name", "vector"]
    return np.array(table["vector"].to_pylist(), np.float32), table["name"].to_pylist()


def read_npz(files):
    with np.load(files[0], allow_pickle=False) as arrays:
        return arrays["vectors"], arrays["names"].tolist()


def read_npy(files):
    assert files[1].name == "out.names.txt"
    return np.load(files[0], mmap_mode="r"), files[1].read_text(encoding="utf-8").split("\n")[:-1]


def read_word2vec(files):
    """As gensim does: a header, then a word and numbers, delimited by single spaces."""
    lines = files[0].read_bytes().decode("utf-8").split("\n")
    num, width = map(int, lines[0].split(" "))
    rows = [line.split(" ") for line in lines[1:-1]]
    assert len(rows) == num
    assert all(len(row) == width + 1 for row in rows)
    return np.array([row[1:] for row in rows]).astype(np.float32), [row[0] for row in rows]


def read_projector(files):
    assert files[1].name == "out.metadata.tsv"
    rows = [line.split("\t") for line in files[0].read_text().split("\n")[:-1]]
    return np.array(rows).astype(np.float32), files[1].read_text(encoding="utf-8").split("\n")[:-1]


READERS = {
    "parquet": read_parquet,
    "npz": read_npz,
    "npy": read_npy,
    "word2vec": read_word2vec,
    "projector": read_projector,
}


def as_line(text):
    return text.replace("\t", "\\t").replace("\n", "\\n")


ESCAPED = {
    "npy": as_line,
    "projector": as_line,
    "word2vec": lambda text: text.replace("\t", "_").replace("\n", "_").replace(" ", "_") or "_",
}


def test_words_that_would_be_equal_are_refused(run, tmp_path):
    names = ["New_York", "New York", *run.graph.entities.names.to_pylist()[2:]]
    run.graph = replace(run.graph, entities=Vocabulary(names, "entity"))
    with pytest.raises(PairREError, match="'New_York' and 'New York' would be one word"):
        export(run, tmp_path / "out.txt")
    assert not list(tmp_path.iterdir())


def test_nothing_is_half_written(run, tmp_path):
    run.model.entity[39] = torch.nan  # in the last chunk
    for endings in FORMATS.values():
        with pytest.raises(PairREError, match="diverged"):
            export(run, tmp_path / f"out{endings[0]}")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_refused(run, tmp_path):
    for out, options, words in (
        ("out.xyz", {}, "no format ends so"),
        ("out.tsv", {"format": "parquett"}, "did you mean 'parquet'"),
        ("out.tsv", {"table": "words"}, "entities, relations"),
        ("none/out.tsv", {}, "there is no folder"),
        (".", {"format": "npz"}, "folder"),
    ):
        with pytest.raises(PairREError, match=words):
            export(run, tmp_path / out, **options)
    assert not list(tmp_path.iterdir())
