"""`pairre train --resume` without GRAPH and for longer, and `--init-from`: what is said, and what is refused."""

import pytest

from pairre import load_run

SMALL = ["--set", "model.dim=8", "--set", "train.batch=32", "--set", "train.steps=20", "--set", "sampling.negatives=8"]


@pytest.fixture
def run(call, triples_file, tmp_path):
    code, _, said = call("train", triples_file, "--out", tmp_path / "run", *SMALL)
    assert code == 0, said
    return tmp_path / "run"


def test_a_run_goes_on_without_its_graph(call, run):
    code, printed, said = call("train", "--resume", "--out", run, "--set", "train.steps=30")
    assert code == 0, said
    assert "MRR" in printed
    assert load_run(run).recipe.train.steps == 30


def test_a_run_starts_from_another(call, run, triples_file, tmp_path):
    code, _, said = call("train", triples_file, "--init-from", run, "--out", tmp_path / "next", "--set", "train.lr=0.1")
    assert code == 0, said
    assert load_run(tmp_path / "next").origin["run"] == "run"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "{new}"], "name one source: GRAPH"),
        (["--resume", "--out", "{new}"], "no such run folder"),
        (["--resume", "--out", "{run}", "--columns", "1,2,3"], "without GRAPH"),
        (["--resume", "--out", "{run}", "--set", "train.lr=1"], "train.lr: 1.0, not"),
        (["--resume", "--out", "{run}", "--set", "train.steps=3"], "train.steps: 3 is below step"),
        (["atlas", "--out", "{new}", "--init-from", "{run}"], "no entity of atlas"),
        (["atlas", "--out", "{new}", "--init-from", "{new}"], "no such run folder"),
        (["{graph}", "--out", "{new}", "--init-from", "{run}", "--set", "model.dim=9"], "model.dim: 9"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(call, run, triples_file, tmp_path, arguments, words):
    new = tmp_path / "new"
    code, printed, said = call("train", *(a.format(new=new, run=run, graph=triples_file) for a in arguments))
    assert code == 2
    assert printed == ""
    assert len(said.splitlines()) == 1
    assert words in said
    assert not new.exists()
