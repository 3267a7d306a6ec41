"""The commands `why`, `similar` and `export`: what they print, what they refuse, and that they leave nothing behind."""

import json

import numpy as np
import pytest

from pairre import Run, load_run
from pairre.models import model_class
from pairre.settings import from_values


@pytest.fixture
def run(graph, tmp_path):
    model = model_class("pairre")(graph.num_entities, graph.num_relations, 6)
    model.initialise(1.0, 3)
    return Run(graph, from_values({"model": {"dim": 6}}), model).save(tmp_path / "run")


def refused(result, *words):
    code, printed, said = result
    assert (code, printed) == (2, "")
    lines = said.splitlines()
    assert len(lines) == 1, said
    assert all(word in lines[0] for word in words), said


def test_why(call, run, tmp_path):
    asked = ("why", run, "--head", "e3", "--relation", "beside", "--tail", "e4")
    code, printed, said = call(*asked, "-k", 3)
    assert code == 0, said
    assert "beside(x, y) ⇒ beside(y, x)" in printed
    assert "e4 — beside — e3" in printed
    assert "facts it depends on" in printed
    refits = [line.split()[0] for line in printed.splitlines() if "(with all facts)" in line]
    assert refits == ["head", "tail"]  # each with its facts below it, or none that the answer depends on
    found = json.loads(call(*asked, "--json", "--side", "head")[1])
    assert found["fact"] == {"head": "e3", "relation": "beside", "tail": "e4"}
    assert found["side"] == "head"
    assert {rule["kind"] for rule in found["rules"]} >= {"symmetry", "subrelation", "inverse"}
    assert len(found["facts"]) <= 5
    assert set(found["refits"]) == {"head", "tail"}
    rules = tmp_path / "rules.tsv"
    rules.write_text("body\thead\tkind\tconfidence\nnext\tbeside\tsubrelation\t0.25\n")
    [rule] = json.loads(call(*asked, "--json", "--rules", rules)[1])["rules"]
    assert rule["rule"] == "next(x, y) ⇒ beside(x, y)"
    assert rule["ways"] == [[{"head": "e3", "relation": "next", "tail": "e4"}]]


def test_why_of_the_best_prediction(call, run):
    asked = ("predict", run, "--head", "e3", "--relation", "beside", "--why")
    rows = json.loads(call(*asked, "--format", "json")[1])
    assert rows[0]["why"]["fact"]["tail"] == rows[0]["tail"]
    assert rows[0]["why"]["rank"] == 1
    assert "why" not in rows[1]
    assert f"e3 — beside — {rows[0]['tail']}: score" in call(*asked)[1]
    backwards = ("predict", run, "--tail", "e3", "--relation", "beside", "--why", "--format", "json")
    assert json.loads(call(*backwards)[1])[0]["why"]["side"] == "head"
    refused(call(*asked, "--format", "csv"), "--why")


def test_faults_of_why(call, run, tmp_path):
    refused(call("why", run, "--head", "e99", "--relation", "next", "--tail", "e1"), "e99", "e9")
    refused(call("why", run, "--head", "e1", "--relation", "nixt", "--tail", "e1"), "nixt", "next")
    refused(call("why", run, "--head", "e1", "--relation", "next"), "--tail")
    asked = ("why", run, "--head", "e1", "--relation", "next", "--tail", "e2")
    refused(call(*asked, "--rules", tmp_path / "none.tsv"), "none.tsv", "no such file")
    (tmp_path / "bad.tsv").write_text("body\thead\n")
    refused(call(*asked, "--rules", tmp_path / "bad.tsv"), "bad.tsv:1")
    refused(call(*asked, "-k", 0), "-k")
    refused(call(*asked, "--side", "relation"), "--side")


def test_similar(call, run):
    code, printed, said = call("similar", run, "e3", "-k", 4)
    assert code == 0, said
    assert len(printed.strip().splitlines()) == 5
    found = json.loads(call("similar", run, "e3", "-k", 4, "--json")[1])
    assert [one["rank"] for one in found] == [1, 2, 3, 4]
    pairs = json.loads(call("similar", run, "--duplicates", "--threshold", 0.5, "--json")[1])
    assert all(pair["similarity"] >= 0.5 for pair in pairs)
    assert "pairs" in call("similar", run, "--duplicates", "--threshold", 0.5)[1]
    groups = json.loads(call("similar", run, "--clusters", 3, "--json")[1])
    assert sorted(name for group in groups for name in group["entities"]) == sorted(f"e{i}" for i in range(40))
    assert groups[0]["entities"][1] in call("similar", run, "--clusters", 3, "-k", 2)[1]


def test_faults_of_similar(call, run):
    for wrong in ((), ("e1", "--duplicates"), ("--duplicates", "--clusters", 2)):
        refused(call("similar", run, *wrong), "one of", "--clusters N")
    refused(call("similar", run, "e99"), "e99")
    refused(call("similar", run, "--clusters", 41), "40 entities")
    refused(call("similar", run, "--duplicates", "--threshold", 2), "--threshold")


def test_export(call, run, tmp_path):
    file = tmp_path / "vectors.npz"
    code, printed, said = call("export", run, "--out", file)
    assert code == 0, said
    assert str(file) in printed
    expected = load_run(run).entity_vectors()
    with np.load(file) as arrays:
        assert arrays["names"].tolist() == expected.names
        assert np.array_equal(arrays["vectors"], expected.array)
    refused(call("export", run, "--out", file), "there already", "--force")
    assert call("export", run, "--out", file, "--table", "relations", "--force")[0] == 0
    with np.load(file) as arrays:
        assert arrays["names"].tolist() == ["next", "previous", "beside"]
    assert call("export", run, "--out", tmp_path / "v.data", "--format", "projector")[0] == 0
    refused(call("export", run, "--out", tmp_path / "v.tsv"), "v.metadata.tsv: there already")


def test_faults_of_export(call, run, tmp_path):
    before = sorted(tmp_path.iterdir())
    refused(call("export", run, "--out", tmp_path / "v.xyz"), "no format ends so", ".parquet")
    refused(call("export", run, "--out", tmp_path / "none" / "v.npz"), "there is no folder")
    refused(call("export", run, "--out", tmp_path), "a folder")
    refused(call("export", run, "--out", tmp_path / "v.npz", "--table", "words"), "--table")
    refused(call("export", run, "--out", tmp_path / "v.npz", "--format", "csv"), "--format")
    refused(call("export", tmp_path / "none", "--out", tmp_path / "v.npz"), "no such run folder")
    assert sorted(tmp_path.iterdir()) == before
