"""The commands `rules apply` and `rules evaluate`: their files, and requests that cannot be met."""

import csv
import json

import pytest

from pairre.models import PairRE
from pairre.rules import Rule, write_rules
from pairre.runs import Run


@pytest.fixture
def folder(graph, quick, tmp_path):
    model = PairRE(graph.num_entities, graph.num_relations, quick.model.dim)
    model.initialise(0.5, 0)
    path = tmp_path / "run"
    Run(graph, quick, model).save(path)
    write_rules(tmp_path / "rules.tsv", [Rule(("next",), "previous", "inverse", 0.9)])
    write_rules(tmp_path / "strange.tsv", [Rule(("nxt",), "previous", "inverse", 0.9)])
    return path


def test_facts_are_written_with_their_rules(call, folder, tmp_path, graph):
    file = tmp_path / "implied.csv"
    code, said, error = call("rules", "apply", folder, tmp_path / "rules.tsv", "--out", file, "-k", 5)
    assert code == 0, error
    with file.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    facts = {names for split in ("train", "valid", "test") for names in graph.names(graph.split(split))}
    assert f"{len(rows)} facts are in" in said
    for row in rows:
        assert (row["tail"], "next", row["head"]) in facts
        assert (row["head"], "previous", row["tail"]) not in facts
        assert row["rules"] == "next(x, y) ⇒ previous(y, x) [0.9]"
        assert float(row["confidence"]) == 0.9


def test_metrics_with_rules(call, folder, tmp_path):
    file = tmp_path / "metrics.json"
    code, said, _ = call("rules", "evaluate", folder, tmp_path / "rules.tsv", "--json", file, "--device", "cpu")
    assert code == 0
    assert "with rules" in said
    result = json.loads(file.read_text(encoding="utf-8"))
    assert result["with_rules"]["both"]["mrr"] > result["without_rules"]["both"]["mrr"]


def test_bad_requests(call, folder, tmp_path):
    rules, file = tmp_path / "rules.tsv", tmp_path / "a.csv"
    before = sorted(tmp_path.iterdir())
    for arguments, message in (
        (["apply", folder, rules, "--out", tmp_path / "a.xls"], "unknown ending"),
        (["apply", folder, rules, "--out", rules], "--force"),
        (["apply", folder, tmp_path / "strange.tsv", "--out", file], "no relation named 'nxt'"),
        (["apply", folder, tmp_path / "none.tsv", "--out", file], "none.tsv"),
        (["apply", folder, rules, "--out", file, "--combine", "mean"], "--combine"),
        (["apply", folder, rules, "--out", file, "--min-confidence", "2"], "--min-confidence"),
        (["evaluate", tmp_path / "nowhere", rules], "nowhere"),
        (["evaluate", folder, tmp_path / "strange.tsv"], "no relation named 'nxt'"),
    ):
        code, _, said = call("rules", *arguments)
        assert (code, len(said.strip().splitlines())) == (2, 1), said
        assert message in said
    assert sorted(tmp_path.iterdir()) == before
