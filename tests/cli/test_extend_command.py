"""`pairre extend`: a run folder like any other, and one line for what cannot be."""

import csv
import json

import pyarrow.parquet as pq
import pytest

import pairre
from pairre import load_run
from pairre.support.files import read_checked_json, write_checked_json


@pytest.fixture
def run(call, triples_file, tmp_path):
    settings = ["model.dim=8", "train.batch=32", "train.steps=20", "sampling.negatives=8"]
    code, _, said = call(
        "train", triples_file, "--out", tmp_path / "run", *(part for s in settings for part in ("--set", s))
    )
    assert code == 0, said
    return tmp_path / "run"


@pytest.fixture
def new(tmp_path):
    (tmp_path / "new.csv").write_text("to|kind|from\ne3|next|new one\ne5|beside|new one\ne6|next|e5\n")
    return tmp_path / "new.csv"


LAYOUT = ["--columns", "from,kind,to", "--header", "--delimiter", "|"]


def test_a_run_is_extended_and_answers(call, run, new, tmp_path):
    code, printed, said = call("extend", run, new, "--out", tmp_path / "more", *LAYOUT)
    assert code == 0, said
    assert "1 new entities" in printed
    assert load_run(tmp_path / "more").origin["run"] == "run"
    code, printed, _ = call("predict", tmp_path / "more", "--head", "new one", "--relation", "next", "--format", "json")
    assert code == 0
    assert len(json.loads(printed)) == 10
    assert call("evaluate", tmp_path / "more")[0] == 0
    code, _, said = call("train", run / "graph", "--out", tmp_path / "more", "--resume")
    assert code == 2
    assert len(said.splitlines()) == 1


NOTE = "What is about the 1 entities that came with `pairre extend` has no probability: none was fitted for them."


def test_what_is_about_a_new_entity_has_no_probability_in_any_output(call, run, new, tmp_path):
    """Its vector fits its few facts closely, so that the curve of the others would promise too much."""
    more, file = tmp_path / "more", tmp_path / "out.parquet"
    assert call("extend", run, new, "--out", more, *LAYOUT)[0] == 0

    def said_of(*arguments):
        code, printed, said = call(*arguments)
        assert code == 0, said
        assert said.count(NOTE) == 1
        return printed

    query = ("--head", "new one", "--relation", "next")
    answers = json.loads(said_of("predict", more, *query, "--format", "json"))
    assert {answer["probability"] for answer in answers} == {None}
    assert all(answer["base_rate"] for answer in answers)
    assert "%" not in said_of("predict", more, *query).split("%)")[1]  # but in the title
    said_of("predict", more, "--head", "e1", "--relation", "next", "-k", 100, "--any", "--out", file)
    rows = pq.read_table(file).to_pylist()
    assert [row["tail"] for row in rows if row["probability"] is None] == ["new one"]
    (tmp_path / "claims.tsv").write_text("e1\tnext\te2\nnew one\tnext\te4\n")
    known, newer = csv.DictReader(said_of("score", more, tmp_path / "claims.tsv", "--format", "csv").splitlines())
    assert (float(known["probability"]) > 0, newer["probability"]) == (True, "")
    why = json.loads(said_of("why", more, *query, "--tail", "e4", "--json"))
    assert why["probability"] is None
    said_of("discover", more, "--out", file, "--force", "-k", 10_000)
    links = pq.read_table(file).to_pylist()
    is_new = ["new one" in (link["head"], link["tail"]) for link in links]
    assert any(is_new)
    assert [link["probability"] is None for link in links] == is_new
    code, _, said = call("discover", more, "--out", file, "--force", "-k", 10_000, "--min-probability", 0.01)
    assert (code, NOTE in said) == (0, False)
    assert not any("new one" in (link["head"], link["tail"]) for link in pq.read_table(file).to_pylist())
    for arguments in (("predict", more, "--head", "e1", "--relation", "next", "-k", 1, "--any"), ("score", run, new)):
        assert "pairre extend" not in call(*arguments)[2]


def test_a_curve_that_is_fitted_again_covers_the_same_entities(call, run, new, tmp_path):
    more, twice = tmp_path / "more", tmp_path / "twice"
    assert call("extend", run, new, "--out", more, *LAYOUT)[0] == 0
    first = load_run(run)
    assert pairre.calibrate(load_run(more)).num_entities == first.graph.num_entities
    (tmp_path / "newest.tsv").write_text("newest\tnext\tnew one\n")
    assert call("extend", more, tmp_path / "newest.tsv", "--out", twice)[0] == 0
    assert load_run(twice).calibration.num_entities == load_run(twice).num_trained == first.graph.num_entities
    stored = read_checked_json(twice / "calibration.json")
    del stored["num_entities"]  # as older versions wrote it
    write_checked_json(twice / "calibration.json", stored)
    assert load_run(twice, verify=False).calibration.num_entities == first.graph.num_entities
    both = pairre.merge([load_run(twice, verify=False)] * 2)
    assert both.num_trained == first.graph.num_entities


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{new}"], "relations that the run does not know"),  # without its layout, the columns are others
        (["{new}.tsv"], "no such file"),
        (["{new}", *LAYOUT, "--out", "{run}"], "exists"),
        (["{new}", *LAYOUT, "--columns", "from,to"], "three columns expected"),
        (["{new}", *LAYOUT, "--move", "all"], "--move"),
        (["{new}", *LAYOUT, "--rate", "nan"], "rate"),
        (["{new}", *LAYOUT, "--epochs", "-1"], "--epochs"),
        (["{run}/graph/train.parquet"], "train.parquet"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(call, run, new, tmp_path, arguments, words):
    given = [argument.format(new=new, run=run) for argument in arguments]
    out = [] if "--out" in given else ["--out", tmp_path / "more"]
    code, printed, said = call("extend", run, *given, *out)
    assert code == 2
    assert printed == ""
    assert len(said.splitlines()) == 1
    assert words in said
    assert not (tmp_path / "more").exists()
    assert call("extend", tmp_path / "nothing", new, "--out", tmp_path / "more")[0] == 2
