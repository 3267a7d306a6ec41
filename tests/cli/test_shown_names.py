"""Tables show labels and short names in place of IRIs, and a probability with its base rate; files keep exact names."""

import json

import pytest

from pairre import load_graph
from pairre.cli import console
from pairre.models import PairRE
from pairre.rules import Rule, write_rules
from pairre.runs import Run

NAMES = "http://example.org/building#"


@pytest.fixture
def folder(tmp_path, quick):
    """A run on an ontology whose names all have a prefix, and one of whose entities has a label; rules beside it."""
    feeds = [f"ex:Fan{i} ex:feeds ex:Room{i} ." for i in range(12)]
    feeds += [f"ex:Room{i} ex:fedBy ex:Fan{i} ." for i in range(9)]
    prefixes = [f"@prefix ex: <{NAMES}> .", "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> ."]
    (tmp_path / "b.ttl").write_text("\n".join([*prefixes, 'ex:Fan3 rdfs:label "Big fan" .', *feeds]) + "\n")
    graph = load_graph(tmp_path / "b.ttl", split=(0.5, 0.25, 0.25))
    model = PairRE(graph.num_entities, graph.num_relations, quick.model.dim)
    model.initialise(0.5, 0)
    write_rules(tmp_path / "rules.tsv", [Rule((f"{NAMES}feeds",), f"{NAMES}fedBy", "inverse", 0.9)])
    (tmp_path / "claims.csv").write_text("head,relation,tail\nex:Fan3,ex:feeds,ex:Room1\nex:Fan1,ex:feeds,ex:Room2\n")
    return Run(graph, quick, model.requires_grad_(False)).save(tmp_path / "run")


def test_no_table_shows_an_iri(call, folder, tmp_path):
    for words in (
        ("stats", tmp_path / "b.ttl"),
        ("score", folder, tmp_path / "claims.csv"),
        ("discover", folder, "--out", tmp_path / "links.csv"),
        ("rules", "apply", folder, tmp_path / "rules.tsv", "--out", tmp_path / "implied.csv", "-k", "3"),
    ):
        code, printed, said = call(*words)
        assert code == 0, said
        assert "http" not in printed
        assert "ex:fe" in printed
    assert NAMES in (tmp_path / "links.csv").read_text()


def test_a_score_stands_beside_its_probability(call, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(console.out, "_width", 200)
    _, printed, _ = call("score", folder, tmp_path / "claims.csv")
    [title, first, second] = printed.strip().splitlines()
    rows = json.loads(call("score", folder, tmp_path / "claims.csv", "--format", "json")[1])
    assert f"probability (base rate {rows[0]['base_rate']:.0%})" in " ".join(title.split())
    assert first.startswith("Big fan")
    for line, row in zip((first, second), rows, strict=True):
        assert f"{row['probability']:.0%}" in line.split()
        assert row["head"].startswith(NAMES)


def test_without_validation_triples_there_is_no_probability(call, folder, tmp_path, quick, monkeypatch):
    assert folder
    monkeypatch.setattr(console.out, "_width", 200)
    graph = load_graph(tmp_path / "b.ttl", split=(1, 0, 0))
    model = PairRE(graph.num_entities, graph.num_relations, quick.model.dim)
    model.initialise(0.5, 0)
    Run(graph, quick, model).save(tmp_path / "other")
    _, printed, _ = call("score", tmp_path / "other", tmp_path / "claims.csv")
    assert "probability" not in printed
    assert len(printed.strip().splitlines()) == 3
