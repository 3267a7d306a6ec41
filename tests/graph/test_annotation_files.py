"""Labels and types from files of two columns, given or found in a folder of splits; faults say where."""

from __future__ import annotations

import gzip
import logging

import pytest

from pairre.graph import load_graph
from pairre.support.errors import GraphError


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "splits"
    folder.mkdir()
    (folder / "train.tsv").write_text("Q1\tP1\tQ2\nQ2\tP1\tQ3\nQ2\tP2\tQ1\n")
    return folder


def labels(graph):
    ids = range(graph.num_entities)
    return [graph.entity_label(i) for i in ids], [graph.relation_label(i) for i in range(graph.num_relations)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("l.tsv", 'name\tlabel\nQ1\tOne, "1"\nP1\t is \nQ9\tnobody\nQ1\tagain\n'),
        ("l.txt", 'Q1\tOne, "1"\r\nP1\tis\r\n'),
        ("l.csv", 'Q1,"One, ""1"""\nP1,is\nQ3,\n'),
        ("l.csv.gz", gzip.compress(b'id;label\nQ1;"One, ""1"""\nP1;is\n', mtime=0)),
    ],
)
def test_labels_of_a_file(folder, tmp_path, name, text):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert labels(load_graph(folder, labels=tmp_path / name)) == (['One, "1"', None, None], ["is", None])


def test_files_of_a_folder_are_read_by_themselves_and_given_ones_come_first(folder, tmp_path):
    (folder / "relation-labels.tsv").write_text("P1\tpart of\nQ1\tnot a relation\n")
    (folder / "Types.tsv.gz").write_bytes(gzip.compress(b"entity\ttype\nQ1\tcity\nQ1\tcapital\nQ3\tcity\nQ8\tsea\n"))
    (folder / "labels.parquet").write_text("not text")
    own = tmp_path / "own.tsv"
    own.write_text("P2\tborders\nQ2\tTwo\n")
    graph = load_graph(folder, labels=[own])
    assert labels(graph) == ([None, "Two", None], ["part of", "borders"])
    types = graph.entity_types
    assert [[types.names[t] for t in types.of(i)] for i in range(3)] == [["city", "capital"], [], ["city"]]
    own.write_text("Q2\triver\n")
    assert load_graph(folder, types=own).entity_types.names.names.to_pylist() == ["river"]


def test_a_file_of_a_folder_that_is_neither_is_left_out(folder, caplog):
    (folder / "types.csv").write_text("a,b,c\n")
    with caplog.at_level(logging.WARNING, logger="pairre"):
        assert load_graph(folder).entity_types is None
    assert "types.csv:1: 3 columns, expected 2 (entity and type); the file is left out" in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("l.tsv", "Q1\tOne\nQ2\n", "l.tsv:2: 1 column, expected 2 (name and label)"),
        ("l.csv", "Q1,One\n\n,Two\n", "l.csv:3: the name is empty"),
        ("l.tsv", b"Q1\tOne\nQ2\t\xff\n", "l.tsv:2: invalid UTF-8 (byte 0xff at position 4)"),
        ("l.tsv", "", "l.tsv: empty; rows of name and label expected"),
        ("l.tsv", "x\ty\n", "l.tsv: none of its 1 names, such as 'x', is in the graph"),
        ("l.csv", f"Q1,{'x' * 200_000}\n", "l.csv: cannot be read: field larger than field limit (131072)"),
        ("l.csv.gz", "Q1,One", "l.csv.gz: cannot be read: "),
        ("l.parquet", "", "l.parquet: a table of name and label ends in .tsv, .csv, .txt, each also .gz or .zst"),
        ("none.tsv", None, "none.tsv: no such file"),
    ],
)
def test_a_fault_is_one_line_that_says_where(folder, tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(GraphError) as caught:
        load_graph(folder, labels=tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(caught.value)
