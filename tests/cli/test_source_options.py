"""The options of what is read: labels on the screen, stored names in JSON, relations by any name, one source only."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ring = [f"Q{i},P{1 + i % 2},Q{(i + 1) % 12}\nQ{i},P3,Q{(i + 2) % 12}" for i in range(12)]
    (tmp_path / "links.csv").write_text("head,relation,tail\n" + "\n".join(ring))
    (tmp_path / "names.csv").write_text("name,label\nQ1,Éva\nQ2,Ben\nQ3,Ben\nP1,knows well\nP3,likes\n")
    (tmp_path / "kinds.csv").write_text("entity,type\nQ1,woman\nQ2,man\nQ3,man\n")
    (tmp_path / "links.rq").write_text("SELECT * { ?s ?p ?o }")
    return tmp_path


def test_labels_from_reading_to_answers(files, call):
    named = ("--labels", "names.csv", "--types", "kinds.csv")
    code, out, err = call("stats", "links.csv", *named, "--exclude", "P2", "--split", "100/0/0")
    assert code == 0, err
    for text in ("knows well", "triples left out: other relations", "entities with a label", "one of 2 types"):
        assert text in out
    code, out, err = call("train", "links.csv", *named, "--out", "run", "--set", "train.steps=4", "--device", "cpu")
    assert code == 0, err
    question = ("predict", "run", "--head", "eva", "--any", "--known", "-k", "20")
    code, out, err = call(*question, "--relation", "LIKES")
    assert code == 0, err
    assert "Éva" in out
    assert "Ben (Q2)" in out
    assert "Ben (Q3)" in out
    code, out, _ = call(*question, "--relation", "likes", "--format", "json")
    assert (code, {row["head"] for row in json.loads(out)}) == (0, {"Q1"})
    assert {row["tail_label"] for row in json.loads(out)} == {"Éva", "Ben", None}
    code, out, _ = call(*question, "--relation", "likes", "--type", "Man", "--format", "csv")
    assert {line.split(",")[3] for line in out.splitlines()[1:]} == {"Q2", "Q3"}
    code, out, _ = call("evaluate", "run", "--split", "train", "--by", "relation")
    assert (code, "knows well" in out) == (0, True)
    code, _, err = call("predict", "run", "--head", "ben", "--relation", "likes")
    assert (code, err) == (2, "pairre: entity 'ben' may mean 'Ben' (Q2), 'Ben' (Q3); write one by name\n")


@pytest.mark.parametrize("command", ["stats", "train", "tune", "rules mine"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name one source: GRAPH, or an endpoint with --sparql URL --query FILE"),
        (("links.csv", "--sparql", "http://127.0.0.1:1/"), "name one source: GRAPH, or an endpoint"),
        (("--sparql", "http://127.0.0.1:1/"), "--sparql URL and --query FILE go together"),
        (("links.csv", "--query", "links.rq"), "--sparql URL and --query FILE go together"),
        (
            ("--sparql", "http://127.0.0.1:1/", "--query", "links.rq"),
            "cannot be reached: Connection",
        ),
        (("--sparql", "http://127.0.0.1:1/", "--query", "none.rq"), "none.rq: no such file"),
        (("links.csv", "--labels", "none.csv"), "none.csv: no such file"),
        (("links.csv", "--types", "links.rq"), "links.rq: a table of entity and type ends in"),
        (("links.csv", "--exclude", "P"), "no relation named 'P'; nearest: 'P"),
        (("atlas", "--only", "bordr"), "no relation named 'bordr'; nearest: 'borders'"),
    ],
)
def test_a_bad_option_is_one_line(files, call, monkeypatch, command, options, message):
    if "--sparql" in options:
        pytest.importorskip("pyoxigraph")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
    out = () if command == "stats" else ("--out", "out.tsv")
    code, _, err = call(*command.split(), *options, *out)
    assert (code, err.count("\n")) == (2, 1), err
    assert message in err
    assert not (files / "out.tsv").exists()
