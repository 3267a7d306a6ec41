"""Triples and names that a person gives, from lists and files of every kind, become ids."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairre.graph import Layout
from pairre.graph.lookup import find_triples, read_names
from pairre.support.errors import GraphError, PairREError

ROWS = [("e1", "next", ""), ("", "beside", "e3"), ("e4", "", "e5"), ("e1", "next", "")]
IDS = [["e1", "next", None], [None, "beside", "e3"], ["e4", None, "e5"], ["e1", "next", None]]


def write(path, rows, delimiter="\t"):
    text = "".join(delimiter.join(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def named(graph, ids):
    names = (graph.entities, graph.relations, graph.entities)
    return [[None if id < 0 else n[id] for n, id in zip(names, row, strict=True)] for row in ids.tolist()]


def test_open_members_are_read_from_lists_and_files(graph, tmp_path):
    table = pa.table([pa.array(column) for column in zip(*ROWS, strict=True)], ["head", "relation", "tail"])
    nulls = pa.table(
        [pa.array([name or None for name in c], pa.string()) for c in zip(*ROWS, strict=True)], list("hrt")
    )
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(nulls, tmp_path / "b.parquet")
    files = [
        write(tmp_path / "a.tsv", ROWS),
        write(tmp_path / "a.tsv.gz", ROWS),
        write(tmp_path / "a.csv", [("head", "relation", "tail"), *ROWS], ","),
        write(tmp_path / "a.txt", ROWS, ";"),
        tmp_path / "a.parquet",
        tmp_path / "b.parquet",
    ]
    for source in [ROWS, [[name or None for name in row] for row in ROWS], *files]:
        found = find_triples(graph, source, open_members=True)
        assert named(graph, found.triples) == IDS
        assert found.rows.tolist() == [1, 2, 3, 4]
    swapped = write(tmp_path / "s.tsv", [(t, r, h) for h, r, t in ROWS])
    assert named(graph, find_triples(graph, swapped, Layout(("3", "2", "1")), open_members=True).triples) == IDS


def test_names_are_those_that_people_type(graph):
    found = find_triples(graph, [("E1", "NEXT", "e2"), ("<e3>", "beside", "e4")])
    assert named(graph, found.triples) == [["e1", "next", "e2"], ["e3", "beside", "e4"]]


def test_rows_with_unknown_names_are_skipped_on_request(graph):
    rows = [("e1", "next", "e2"), ("who", "next", "e2"), ("e1", "what", "e2"), ("e5", "next", "e6")]
    found = find_triples(graph, rows, skip_unknown=True)
    assert found.rows.tolist() == [1, 4]
    assert found.num_unknown == 2
    with pytest.raises(PairREError, match="triples: row 2: no entity named 'who'"):
        find_triples(graph, rows)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.tsv", b"e1\tnext\n", "2 columns, expected 3"),
        ("q.tsv", b"e1\tnext\t\ne1\tnext\n", "Expected 3 columns, got 2"),
        ("q.nt", b"<a> <b> <c> .\n", "a file of queries is"),
        ("q.parquet", b"no", "not a readable Parquet file"),
        ("q.csv", b"", "empty"),
    ],
)
def test_files_that_hold_no_queries(graph, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(GraphError, match=message):
        find_triples(graph, tmp_path / name, open_members=True)
    with pytest.raises(GraphError, match="no such file"):
        find_triples(graph, tmp_path / "none.tsv", open_members=True)


def test_names_come_one_a_line_or_from_a_column(tmp_path):
    names = ["São Paulo", "a, b", "c"]
    (tmp_path / "n.txt").write_text("\n".join(names) + "\n\n")
    (tmp_path / "n.csv").write_text('id,name\n1,São Paulo\n2,"a, b"\n3,c\n')
    (tmp_path / "one.csv").write_text('São Paulo\n"a, b"\nc\n')
    pq.write_table(pa.table({"id": [1, 2, 3], "name": names}), tmp_path / "n.parquet")
    assert read_names(tmp_path / "n.txt") == names
    assert read_names(tmp_path / "n.csv", "name") == names
    assert read_names(tmp_path / "one.csv") == names
    assert read_names(tmp_path / "n.parquet", "name") == names


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("n.csv", None, "2 columns; pick one"),
        ("n.csv", "nam", "no column 'nam'; did you mean 'name'"),
        ("n.parquet", None, "2 columns; pick one"),
        ("n.parquet", "nam", "no column 'nam'; did you mean 'name'"),
        ("n.txt", "name", "only a .csv, .tsv or .parquet file has columns"),
        ("none", None, "no such file"),
        ("bad.parquet", None, "not a readable Parquet file"),
    ],
)
def test_files_of_names_that_are_refused(tmp_path, name, column, message):
    (tmp_path / "n.csv").write_text("id,name\n1,a\n")
    (tmp_path / "n.txt").write_text("a\n")
    (tmp_path / "bad.parquet").write_text("no")
    pq.write_table(pa.table({"id": [1], "name": ["a"]}), tmp_path / "n.parquet")
    with pytest.raises(GraphError, match=message):
        read_names(tmp_path / name, column)
