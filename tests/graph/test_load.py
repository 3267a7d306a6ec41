"""From a path or name to a graph: single files, folders of splits, what is warned of, and the graph's own files."""

from __future__ import annotations

import gzip
import logging
from dataclasses import replace

import pytest
import torch

from pairre.graph import SPLITS, Graph, Vocabulary, load_graph
from pairre.support.errors import GraphError

TRAIN = "a\tlikes\tb\nb\tlikes\tc\na\tknows\tc\n"


def folder_of(path, **files):
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def named(graph, split="train"):
    return list(graph.names(graph.split(split)))


@pytest.fixture
def warnings(caplog):
    with caplog.at_level(logging.WARNING, logger="pairre"):
        yield lambda: [record.getMessage() for record in caplog.records]


def test_a_folder_keeps_its_splits_as_they_are(tmp_path, warnings):
    folder = folder_of(tmp_path / "mine", train__tsv=TRAIN + TRAIN, valid__csv="c,likes,a\n", test__txt="b knows a\n")
    (folder / "rules.tsv").write_text("not\ta\ttriple\tfile\n")
    (folder / "train.md").write_text("notes")
    graph = load_graph(folder)
    assert named(graph) == [tuple(line.split("\t")) for line in (TRAIN + TRAIN).splitlines()]
    assert named(graph, "valid") == [("c", "likes", "a")]
    assert named(graph, "test") == [("b", "knows", "a")]
    assert (graph.name, graph.num_entities, graph.num_relations) == ("mine", 3, 2)
    assert all(graph.split(s).dtype == torch.int32 for s in SPLITS)
    assert warnings() == []
    assert repr(graph) == "Graph(mine: 3 entities, 2 relations, 6 / 1 / 1 triples)"


@pytest.mark.parametrize(
    "names", [("TRAIN", "dev", "testing"), ("training", "validation", "Test"), ("train", "val", "test")]
)
def test_splits_by_other_names(tmp_path, names):
    graph = load_graph(folder_of(tmp_path / "g", **{f"{n}__tsv": TRAIN for n in names}))
    assert [len(graph.split(s)) for s in SPLITS] == [3, 3, 3]


def test_a_folder_with_train_alone(tmp_path):
    graph = load_graph(folder_of(tmp_path / "g", train__tsv=TRAIN))
    assert [tuple(graph.split(s).shape) for s in SPLITS] == [(3, 3), (0, 3), (0, 3)]
    assert named(graph, "test") == []


def test_unseen_names_are_kept_counted_and_warned_of(tmp_path, warnings):
    graph = load_graph(
        folder_of(
            tmp_path / "g",
            train__tsv=TRAIN,
            valid__tsv="a\tlikes\tnew\n",
            test__tsv="a\tlikes\tc\nnew\tlikes\tother\na\tnovel\tb\n",
        )
    )
    assert named(graph, "test")[2] == ("a", "novel", "b")
    assert (graph.num_entities, graph.num_relations) == (5, 3)
    assert [w.split(" triples")[0] for w in warnings()] == ["g: 1 of 1 valid", "g: 2 of 3 test"]


def test_a_single_file_is_split_without_its_repetitions(tmp_path, warnings):
    lines = [f"e{i % 20}\tr{i % 3}\te{i * 7 % 20}\n" for i in range(200)]
    (tmp_path / "my.graph.tsv").write_text("".join(lines))
    graph = load_graph(tmp_path / "my.graph.tsv", split=(0.8, 0.1, 0.1), seed=3)
    assert graph.name == "my"
    assert sorted(t for s in SPLITS for t in named(graph, s)) == sorted({tuple(x.strip().split("\t")) for x in lines})
    assert warnings() == [f"{tmp_path}/my.graph.tsv: 140 repeated triples left out before splitting"]
    assert [len(graph.split(s)) for s in SPLITS] == [48, 6, 6]


def test_a_split_that_must_be_smaller_is_said(tmp_path, warnings):
    (tmp_path / "g.tsv").write_text("".join(f"e{i}\tr\te{i + 1}\n" for i in range(2000)))
    graph = load_graph(tmp_path / "g.tsv", split=(0.2, 0.4, 0.4))
    held = len(graph.valid) + len(graph.test)
    assert 0 < held < 1600
    assert warnings() == [
        f"{tmp_path}/g.tsv: {held:,} triples held out instead of 1,600, so that train has every entity and relation"
    ]


@pytest.mark.parametrize("num", [1, 9, 10, 30])
def test_rounding_is_no_reason_to_warn(tmp_path, warnings, num):
    (tmp_path / "g.tsv").write_text("".join(f"e{i % 5}\tr{i % 2}\te{i % 3}\n" for i in range(num)))
    graph = load_graph(tmp_path / "g.tsv")
    assert not [w for w in warnings() if "held out" in w]
    assert len(graph.train) > 0


def test_layout_reaches_the_files_of_a_folder(tmp_path):
    rows = "n;to;from;via\n1;b;a;r\n2;c;b;r\n"
    graph = load_graph(folder_of(tmp_path / "g", train__csv=rows, test__csv=rows), columns=("from", "via", "to"))
    assert named(graph, "test") == [("a", "r", "b"), ("b", "r", "c")]
    graph = load_graph(tmp_path / "g", columns=("3", "4", "2"), header=True, delimiter=";")
    assert named(graph) == [("a", "r", "b"), ("b", "r", "c")]


def test_the_bundled_graph_by_name():
    graph = load_graph("atlas")
    assert graph.name == "atlas"
    assert all(len(graph.split(s)) > 0 for s in SPLITS)
    assert load_graph("atlas").fingerprint == graph.fingerprint != load_graph("atlas", seed=1).fingerprint


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "g: no train file in this folder"),
        ({"test__tsv": TRAIN}, "g: no train file in this folder"),
        ({"train__tsv": TRAIN, "train__csv": TRAIN}, "g: two files for one split: train.csv and train.tsv; keep one"),
        ({"train__tsv": TRAIN, "dev__tsv": TRAIN, "valid__nt": ""}, "g: two files for one split: dev.tsv and valid.nt"),
        ({"train__tsv": TRAIN, "test__tsv": "a\tb\n"}, "g/test.tsv:1: 2 columns, expected 3"),
        ({"train__tsv": TRAIN, "test__tsv": ""}, "g/test.tsv: the file is empty"),
    ],
)
def test_folders_that_are_refused(tmp_path, files, message):
    with pytest.raises(GraphError) as caught:
        load_graph(folder_of(tmp_path / "g", **files))
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.tsv", "missing.tsv: no such file or folder"),
        ("no/such/folder", "no/such/folder: no such file or folder"),
        ("x" * 400, "cannot be read: File name too long"),
        ("fb15k-273", "fb15k-237"),  # the nearest benchmark
    ],
)
def test_sources_that_are_refused(tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GraphError) as caught:
        load_graph(source)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_compression_changes_nothing(tmp_path):
    (tmp_path / "g.tsv").write_text(TRAIN)
    (tmp_path / "g.tsv.gz").write_bytes(gzip.compress(TRAIN.encode()))
    assert load_graph(tmp_path / "g.tsv").fingerprint == load_graph(tmp_path / "g.tsv.gz").fingerprint


# --- the graph itself ------------------------------------------------------------------------------------------------


@pytest.fixture
def small():
    splits = (
        torch.tensor(rows, dtype=torch.int32).reshape(-1, 3) for rows in ([[0, 0, 1], [1, 1, 2]], [], [[2, 0, 0]])
    )
    return Graph("small", Vocabulary(["a", "é", "c\nd"], "entity"), Vocabulary(["r", "s"], "relation"), *splits)


def test_save_and_load(tmp_path, small):
    small.save(tmp_path / "deep" / "folder")
    again = Graph.load(tmp_path / "deep" / "folder", "small")
    assert again.fingerprint == small.fingerprint
    assert all(torch.equal(small.split(s), again.split(s)) and again.split(s).dtype == torch.int32 for s in SPLITS)
    assert named(again) == [("a", "r", "é"), ("é", "s", "c\nd")]
    assert again.valid.shape == (0, 3)
    small.save(tmp_path / "deep" / "folder")  # over an old one


@pytest.mark.parametrize(
    "change",
    [
        lambda g: {"entities": Vocabulary(["a", "é", "c\nD"], "entity")},
        lambda g: {"entities": Vocabulary(["aé", "", "c\nd"], "entity")},
        lambda g: {"entities": Vocabulary(["é", "a", "c\nd"], "entity")},
        lambda g: {"entities": Vocabulary(["a", "é", "c\nd", "more"], "entity")},
        lambda g: {"entities": g.relations, "relations": g.entities},
        lambda g: {"relations": Vocabulary(["s", "r"], "relation")},
        lambda g: {"train": g.train.flip(0)},
        lambda g: {"train": g.train.flip(1)},
        lambda g: {"train": g.train[:1]},
        lambda g: {"valid": g.test, "test": g.valid},
        lambda g: {"train": torch.cat([g.train, g.test]), "test": g.valid},
    ],
)
def test_any_change_changes_the_fingerprint(small, change):
    changed = replace(small, **change(small))
    assert changed.fingerprint != small.fingerprint
    assert replace(small, name="renamed").fingerprint == small.fingerprint
