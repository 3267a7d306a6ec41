"""`pairre extend`: a run folder like any other, and one line for what cannot be."""

import json

import pytest

from pairre import load_run


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
    code, _, said = call("predict", tmp_path / "more", "--head", "new one", "--relation", "next")
    assert "new one came with `pairre extend`: probabilities of its answers are not measured" in said
    code, _, said = call("predict", tmp_path / "more", "--head", "e1", "--relation", "next", "-k", 1, "--any")
    assert "pairre extend" not in said
    assert call("evaluate", tmp_path / "more")[0] == 0
    code, _, said = call("train", run / "graph", "--out", tmp_path / "more", "--resume")
    assert code == 2
    assert len(said.splitlines()) == 1


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
