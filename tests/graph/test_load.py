"""From a path or name to a graph: single files, folders of splits, what is warned of, and the graph's own files."""

from __future__ import annotations

import gzip
import logging
import os
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save

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
        lambda g: {"relations": Vocabulary(["s", "r"], "relation")},
        lambda g: {"train": g.train.flip(0)},
        lambda g: {"train": g.train.flip(1)},
        lambda g: {"train": g.train[:1]},
        lambda g: {"valid": g.test, "test": g.valid},
        lambda g: {"train": torch.cat([g.train, g.test]), "test": g.valid},
        lambda g: {"weights": {"train": torch.ones(2)}},
        lambda g: {"weights": {"test": torch.ones(1)}},
    ],
)
def test_any_change_changes_the_fingerprint(small, change):
    changed = replace(small, **change(small))
    assert changed.fingerprint != small.fingerprint
    assert replace(small, name="renamed").fingerprint == small.fingerprint


def test_weights_are_part_of_the_graph(tmp_path, small):
    weighted = replace(small, weights={"train": torch.tensor([0.1, 3.0]), "test": torch.tensor([2.0])})
    weighted.save(tmp_path / "graph")
    again = Graph.load(tmp_path / "graph", "small")
    assert again.fingerprint == weighted.fingerprint
    assert {split: values.tolist() for split, values in again.weights.items()} == {
        "train": pytest.approx([0.1, 3.0]),
        "test": [2.0],
    }
    assert list(weighted.without_test().weights) == ["train"]
    one, other = (replace(small, weights={"train": torch.tensor(w)}) for w in ([1.0, 2.0], [2.0, 1.0]))
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"train": torch.ones(3)}, "not one float32 number for each triple"),
        ({"train": torch.ones(2).double()}, "not one float32 number for each triple"),
        ({"tset": torch.ones(1)}, "not one float32 number for each triple"),
        ({"train": torch.tensor([1, -1.0])}, "negative or not finite"),
        ({"test": torch.tensor([float("nan")])}, "negative or not finite"),
        ({"train": torch.zeros(2)}, "nothing to learn"),
    ],
)
def test_weights_that_do_not_fit_are_refused(small, weights, message):
    with pytest.raises(GraphError, match=message):
        replace(small, weights=weights)


@pytest.mark.parametrize("options", [{"split": (0.8, 0.1, 0.1)}, {"seed": 1}])
def test_a_graph_with_splits_refuses_others(tmp_path, options):
    folder = folder_of(tmp_path / "g", train__tsv=TRAIN)
    for source in (folder, "fb15k-237"):
        with pytest.raises(GraphError, match="for a single file"):
            load_graph(source, **options)


def test_fractions_are_checked_wherever_the_graph_comes_from(tmp_path):
    folder = folder_of(tmp_path / "g", train__tsv=TRAIN)
    for source in (folder, "atlas"):
        with pytest.raises(GraphError, match="add up to 100"):
            load_graph(source, split=(float("nan"), 0.01, 0.01))


@pytest.mark.parametrize("name", ["pipe", "pipe.tsv", "loop", "loop.tsv"])
def test_what_is_no_file_is_refused_without_a_hang(tmp_path, name):
    if name.startswith("pipe"):
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to(name)
    with pytest.raises(GraphError, match=r"not a regular file|circle"):
        load_graph(tmp_path / name)


@pytest.mark.parametrize("name", ["a\0b", "a\0b.tsv", os.fsdecode(b"\xff.tsv")])
def test_names_that_no_file_has(tmp_path, name):
    with pytest.raises(GraphError, match=r"NUL|UTF-8") as caught:
        load_graph(tmp_path / name)
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("file", "change"),
    [
        *((name, lambda data: data[: len(data) // 2]) for name in ("entities.parquet", "train.parquet", "types.json")),
        *((name, lambda data: b"") for name in ("relations.parquet", "valid.parquet", "negatives.safetensors")),
        ("types.json", lambda _: b"[" * 100_000),
        ("types.json", lambda _: b'{"a": ' + b"9" * 5_000 + b"}"),
        ("types.json", lambda _: b'{"a": "b"}'),
        ("types.json", lambda _: b'{"a": 3, "b": 1}'),
        ("types.json", lambda _: b"\xff"),
        ("types.json", None),
        ("train.parquet", None),
        ("train.parquet", lambda _: parquet(head=[9], relation=[0], tail=[0])),
        ("train.parquet", lambda _: parquet(head=[-1], relation=[0], tail=[0])),
        ("train.parquet", lambda _: parquet(head=["a"], relation=[0], tail=[0])),
        ("train.parquet", lambda _: parquet(head=[None], relation=[0], tail=[0])),
        ("train.parquet", lambda _: parquet(name=["a"])),
        ("entities.parquet", lambda _: parquet(name=[1, 2, 3])),
        ("train.parquet", lambda _: parquet(head=[0], relation=[0], tail=[0], weight=["x"])),
        ("negatives.safetensors", lambda _: tensors({"valid.head": torch.zeros(7, 2, dtype=torch.int32)})),
        ("negatives.safetensors", lambda _: tensors({"other": torch.zeros(1, 2, dtype=torch.int32)})),
    ],
)
def test_a_stored_graph_that_is_damaged(tmp_path, file, change):
    ids = torch.tensor([[0, 0, 1]], dtype=torch.int32)
    graph = Graph(
        *("g", Vocabulary(["a", "b"], "entity"), Vocabulary(["r"], "relation"), ids, ids, ids),
        candidates={"valid.head": torch.zeros(1, 2, dtype=torch.int32)},
        types={"x": 0, "y": 1},
    )
    graph.save(tmp_path / "graph")
    assert load_graph(tmp_path / "graph").types == graph.types
    path = tmp_path / "graph" / file
    data = path.read_bytes()
    path.unlink()
    if change is None:
        path.mkdir()
    else:
        path.write_bytes(change(data))
    with pytest.raises(GraphError, match=re.escape(file)) as caught:
        load_graph(tmp_path / "graph")
    assert "\n" not in str(caught.value)


def parquet(**columns):
    types = {"head": pa.int32(), "relation": pa.int32(), "tail": pa.int32()}
    arrays = {
        k: pa.array(v, types.get(k) if v[0] is None or isinstance(v[0], int) else None) for k, v in columns.items()
    }
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays), buffer)
    return buffer.getvalue().to_pybytes()


def tensors(values):
    return save(values)


def test_a_file_that_may_not_fit_into_memory_is_warned_of(tmp_path, monkeypatch, caplog):
    file = tmp_path / "a.tsv"
    file.write_text("a\tr\tb\nb\tr\ta\n")
    load_graph(file)
    assert "pairre ingest" not in caplog.text
    monkeypatch.setattr("pairre.graph.load.available_bytes", lambda: 10)
    load_graph(file)
    assert "a.tsv: about 30 B of memory may be needed to read it, and 10 B are free; pairre ingest" in caplog.text
