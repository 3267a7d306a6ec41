"""What is ingested is what the reader in memory reads: names, ids, splits, index, and everything made of them."""

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pairre
from pairre.graph import SPLITS, Graph
from pairre.graph.ingest import build, names
from pairre.graph.ingest.database import MemoryLimitError
from pairre.graph.ingest.ingest import ingest
from pairre.support.errors import GraphError, RunError

pytest.importorskip("duckdb")
ALL = (1.0, 0.0, 0.0)
NAME = st.text(st.characters(exclude_characters="\t\r\n\0", codec="utf-8"), max_size=4)


def write(path, rows, delimiter="\t"):
    path.write_text("".join(delimiter.join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def triples(num=400, seed=0):
    random = np.random.default_rng(seed)
    heads, kinds, tails = random.integers(0, 60, num), random.integers(0, 5, num), random.integers(0, 60, num)
    return [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in zip(heads, kinds, tails, strict=True)]


def named(graph, split="train"):
    return sorted(graph.names(graph.split(split)))


def in_memory(graph):
    """The same graph with the same ids, without its files."""
    columns = {split: graph.split(split).clone() for split in SPLITS}
    vocabularies = [type(v).__mro__[1](v.names.to_pylist(), v.item) for v in (graph.entities, graph.relations)]
    return Graph(graph.name, *vocabularies, **columns, annotated=graph.annotations)


def outcome(load):
    """The triples by name, or which file and row an error names."""
    try:
        return named(load())
    except GraphError as error:
        return str(error).split(":")[:2]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    write(folder / "t.tsv", triples())
    return pairre.load_graph(ingest(folder / "t.tsv", folder / "graph", split=(0.8, 0.1, 0.1), seed=3))


def test_it_has_the_triples_of_the_file_once(stored):
    every = [triple for split in SPLITS for triple in named(stored, split)]
    assert sorted(every) == sorted(set(triples()))
    assert stored.name == "t"
    assert len(stored.valid) == len(stored.test) == round(len(every) / 10)


def test_train_has_every_entity_and_relation(stored):
    assert len(torch.unique(stored.train[:, [0, 2]])) == stored.num_entities
    assert len(torch.unique(stored.train[:, 1])) == stored.num_relations


def test_index_and_fingerprint_are_those_of_the_graph_in_memory(stored):
    expected = in_memory(stored)
    assert expected.stored is None
    assert stored.fingerprint == expected.fingerprint
    for name in ("known", "known_train"):
        for side in ("head", "relation", "tail"):
            one, two = getattr(stored, name).side(side), getattr(expected, name).side(side)
            assert (one.num_second, one.num_members, one.pair) == (two.num_second, two.num_members, two.pair)
            for part in ("pair_keys", "offsets", "members"):
                assert torch.equal(getattr(one, part), getattr(two, part))
                assert getattr(one, part).dtype == getattr(two, part).dtype
    assert torch.equal(stored.split_of(stored.valid), torch.ones(len(stored.valid), dtype=torch.int8))


def test_splits_depend_on_the_seed_alone(tmp_path, stored):
    source = write(tmp_path / "t.tsv", triples()[::-1])
    same = pairre.load_graph(ingest(source, tmp_path / "same", split=(0.8, 0.1, 0.1), seed=3))
    assert same.fingerprint == stored.fingerprint
    other = pairre.load_graph(ingest(source, tmp_path / "other", split=(0.8, 0.1, 0.1), seed=4))
    assert named(other, "test") != named(stored, "test")


def test_little_memory_changes_nothing(tmp_path, stored, monkeypatch):
    """Buckets of few triples and pieces of few rows: every boundary is crossed."""
    monkeypatch.setattr(build, "_rows_in_bucket", lambda work: 16)
    monkeypatch.setattr(build, "_PIECE", 7)
    monkeypatch.setattr("pairre.graph.ingest.buckets._ROWS", 5)
    source = write(tmp_path / "t.tsv", triples())
    graph = pairre.load_graph(ingest(source, tmp_path / "g", memory="500MB", split=(0.8, 0.1, 0.1), seed=3))
    assert graph.fingerprint == stored.fingerprint
    for side in ("head", "tail"):
        assert torch.equal(graph.known.side(side).offsets, stored.known.side(side).offsets)
        assert torch.equal(graph.known_train.side(side).members, stored.known_train.side(side).members)


def test_without_held_out_triples_there_is_one_index(tmp_path):
    folder = ingest(write(tmp_path / "t.tsv", triples()), tmp_path / "g", split=ALL)
    assert not list(folder.glob("known-*"))
    graph = pairre.load_graph(folder)
    assert graph.known is graph.known_train
    assert len(graph.train) == len(set(triples()))


def test_a_folder_of_splits_keeps_them(tmp_path, caplog):
    rows = list(dict.fromkeys(triples()))
    source = tmp_path / "splits"
    (source / "train").mkdir(parents=True)
    write(source / "train" / "a.tsv", rows[:150])
    write(source / "train" / "b.csv", rows[150:300], ",")
    write(source / "dev.tsv", rows[300:320])
    write(source / "test.tsv", [*rows[320:], rows[0], ("new", "r1", "e1")])
    graph = pairre.load_graph(ingest(source, tmp_path / "g"))
    assert named(graph) == sorted(rows[:300])
    assert named(graph, "valid") == sorted(rows[300:320])
    assert named(graph, "test") == sorted([*rows[320:], rows[0], ("new", "r1", "e1")])
    assert "1 of" in caplog.text
    assert "test triples have an entity or relation that train never shows" in caplog.text
    expected = in_memory(graph)
    for side in ("head", "tail"):
        assert torch.equal(graph.known.side(side).members, expected.known.side(side).members)
        assert torch.equal(graph.known_train.side(side).pair_keys, expected.known_train.side(side).pair_keys)


def test_names_that_do_not_fit_into_memory_are_read_in_slices(tmp_path, stored, monkeypatch):
    real, tried = names._collect_slices, []

    def collect(database, source, slices):
        tried.append(slices)
        if slices < 8:
            raise MemoryLimitError("too much")
        real(database, source, slices)

    monkeypatch.setattr(names, "_collect_slices", collect)
    source, options = write(tmp_path / "t.tsv", triples()), {"split": (0.8, 0.1, 0.1), "seed": 3}
    assert pairre.load_graph(ingest(source, tmp_path / "g", **options)).fingerprint == stored.fingerprint
    assert tried == [1, 2, 4, 8]
    monkeypatch.setattr(names, "_MAX_SLICES", 4)
    with pytest.raises(GraphError, match="too much"):
        ingest(source, tmp_path / "h", **options)


def test_colliding_hashes_take_another_salt(tmp_path, monkeypatch, stored):
    real = names._join

    def colliding(database, source):
        run = database.run
        database.run = lambda sql, step=None: run(sql.replace("hash(name, 0)", "hash(name, 0) % 7"), step)
        return real(database, source)

    monkeypatch.setattr(names, "_join", colliding)
    source = write(tmp_path / "t.tsv", triples())
    folder = ingest(source, tmp_path / "g", split=(0.8, 0.1, 0.1), seed=3)
    assert pairre.load_graph(folder).fingerprint == stored.fingerprint


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(*[st.text(st.characters(exclude_characters="\t\r\n\0", codec="utf-8"), max_size=4)] * 3), max_size=9
    )
)
def test_it_reads_what_the_reader_in_memory_reads(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("property")
    source = write(folder / "t.tsv", rows)
    options = {"header": False, "split": ALL}
    expected = outcome(lambda: pairre.load_graph(source, **options))
    assert outcome(lambda: pairre.load_graph(ingest(source, folder / "g", **options))) == expected
    assert (folder / "g").exists() == isinstance(expected[0], tuple)


def test_a_name_has_its_id(stored):
    for id in range(stored.num_entities):
        assert stored.entities.id(stored.entities[id]) == id
    assert stored.find_entity("E5") == stored.entities.id("e5")
    found = stored.entities.find_all(stored.entities.names.take([3, 1]))
    assert found.to_pylist() == [3, 1]
    with pytest.raises(pairre.PairREError, match="nearest"):
        stored.entities.id("e5x")


def test_training_ends_in_the_same_bits(stored, tmp_path):
    overrides = ["model.dim=16", "train.steps=40", "train.batch=32", "sampling.negatives=8", "loss.subsampling=true"]
    runs = [
        pairre.train(graph, overrides=overrides, device="cpu", progress=False) for graph in (stored, in_memory(stored))
    ]
    for one, two in zip(*(run.model.state_dict().values() for run in runs), strict=True):
        assert torch.equal(one, two)
    assert pairre.evaluate(runs[0], "test")["both"] == pairre.evaluate(runs[1], "test")["both"]


def test_statistics_and_rules_are_the_same(stored):
    from pairre.rules import mine

    expected = in_memory(stored)
    one, two = (pairre.graph_statistics(graph).as_dict() for graph in (stored, expected))
    assert one == two
    thresholds = {"min_support": 1, "min_confidence": 0.1, "min_head_coverage": 0.0}
    assert mine(stored, **thresholds) == mine(expected, **thresholds)


def test_a_run_keeps_the_graph(stored, tmp_path):
    copy = tmp_path / "graph"
    shutil.copytree(stored.stored.folder, copy)
    graph = pairre.load_graph(copy)
    pairre.train(graph, overrides=["model.dim=8", "train.steps=5"], out=tmp_path / "run", progress=False)
    assert (tmp_path / "run/graph/train.npy").stat().st_nlink == 2
    shutil.rmtree(copy)
    run = pairre.load_run(tmp_path / "run")
    assert run.graph.fingerprint == stored.fingerprint
    assert pairre.predict(run, head="e1", relation="r1", k=2)
    resumed = pairre.train(None, overrides=["train.steps=8"], out=tmp_path / "run", resume=True, progress=False)
    assert resumed.graph.stored.folder == tmp_path / "run/graph"
    assert pairre.load_graph(tmp_path / "run").fingerprint == stored.fingerprint


def test_a_run_on_another_file_system_copies_the_graph(stored, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", refuse)
    stored.save(tmp_path / "copy")
    assert (tmp_path / "copy/train.npy").stat().st_nlink == 1
    assert pairre.load_graph(tmp_path / "copy").fingerprint == stored.fingerprint
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(RunError, match="is on another file system than the run, and 0 B are free"):
        stored.save(tmp_path / "another")


def test_damaged_files_are_found(stored, tmp_path):
    shutil.copytree(stored.stored.folder, tmp_path / "g")
    file = tmp_path / "g/train.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(GraphError, match=r"train\.npy: damaged: its contents differ"):
        pairre.load_graph(tmp_path / "g")
    file.write_bytes(data[:-4])
    with pytest.raises(GraphError, match=r"train\.npy: damaged: cut off"):
        pairre.load_graph(tmp_path / "g")
    file.unlink()
    with pytest.raises(GraphError, match=r"train\.npy: missing"):
        pairre.load_graph(tmp_path / "g")
    about = tmp_path / "g/graph.json"
    about.write_text(about.read_text().replace('"name": "t"', '"name": "u"'))
    with pytest.raises(GraphError, match="differ from its checksum"):
        pairre.load_graph(tmp_path / "g")


def test_what_is_made_of_it_is_in_memory(stored):
    """Fewer or more triples than the files have: nothing of their index may be used."""
    without = stored.without_test()
    assert without.stored is None
    assert not without.known.side("tail").contains(stored.test, stored.test[:, 2:]).all()
    assert without.fingerprint != stored.fingerprint


def test_the_description_says_how_it_was_made(stored):
    about = json.loads((stored.stored.folder / "graph.json").read_text())
    assert about["split"] == {"fractions": [0.8, 0.1, 0.1], "seed": 3}
    assert about["num_repeated"] == len(triples()) - len(set(triples()))
    assert about["num_triples"]["train"] == len(stored.train)


def test_progress_adds_up(tmp_path):
    done = []
    ingest(write(tmp_path / "t.tsv", triples()), tmp_path / "g", progress=done.append)
    assert sum(done) == pytest.approx(1)
    assert min(done) >= 0


def test_leakage_of_a_huge_graph_on_disk_is_not_looked_for(stored, monkeypatch):
    from pairre.graph import leakage

    assert "skipped" not in leakage.leakage(stored)
    monkeypatch.setattr(leakage, "MAX_TRIPLES_ON_DISK", 10)
    assert "at most 10 are examined" in leakage.leakage(stored)["skipped"]
    assert "skipped" not in leakage.leakage(in_memory(stored))
