"""A run that was stopped before its end says so wherever it answers; one that stopped early has ended."""

import os
import re
import signal

import pytest

import pairre
from pairre.analysis.report.collect import collect
from pairre.training.loop import TrainingInterruptedError


@pytest.fixture
def half(graph, quick, tmp_path):
    """The folder of a run that was stopped by Ctrl-C after its first validation."""

    def stop(step, mrr):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(TrainingInterruptedError, match="stopped at step 20"):
        pairre.train(graph, quick, out=tmp_path / "half run", on_validation=stop, progress=False, device="cpu")
    return tmp_path / "half run"


def test_every_command_that_opens_it_says_so(call, half, tmp_path):
    note = f"note: {half}: trained 20 of 60 steps; `pairre train --resume --out '{half}'` finishes it"
    for words in (
        ("predict", half, "--head", "e0", "--relation", "next"),
        ("evaluate", half),
        ("discover", half, "--out", tmp_path / "links.csv"),
    ):
        code, _, said = call(*words)
        assert code == 0
        assert said.splitlines()[0] == note
    assert call("train", "--resume", "--out", half)[0] == 0
    assert "note:" not in call("evaluate", half)[2]


def test_a_run_and_its_report_say_so(half):
    run = pairre.load_run(half, "cpu")
    assert (run.unfinished.step, run.unfinished.num_steps) == (20, 60)
    values = collect(run, "test", "pca", lambda *_: None)
    assert values["unfinished"].startswith("Trained 20 of 60 steps only")
    assert ["steps", "20", "of 60, not trained to its end"] in values["facts"]


def test_early_stopping_is_announced_and_is_an_end(call, triples_file, tmp_path):
    run = tmp_path / "run"
    settings = ["model.dim=16", "train.batch=32", "train.steps=400", "train.validate_every=10", "train.patience=2"]
    settings += ["train.lr=0.5", "sampling.negatives=8"]
    arguments = [part for setting in settings for part in ("--set", setting)]
    code, _, said = call("train", triples_file, "--out", run, *arguments)
    assert code == 0
    [(last, best)] = re.findall(
        r"stopped early at step (\d+) of 400: 2 validations without a better MRR; the best was at step (\d+)", said
    )
    assert int(last) == int(best) + 20
    loaded = pairre.load_run(run, "cpu")
    assert loaded.unfinished is None
    assert loaded.history[-1]["step"] == int(last)
    assert [entry["step"] for entry in loaded.history if entry.get("stopped_early")] == [int(last)]
    assert ["steps", last, "of 400, stopped early"] in collect(loaded, "test", "pca", lambda *_: None)["facts"]
    assert "note:" not in call("evaluate", run)[2]


def test_a_run_that_was_never_stopped_is_finished(graph, quick, tmp_path):
    run = pairre.train(graph, quick, progress=False, device="cpu")
    assert run.unfinished is None
    run.save(tmp_path / "saved")
    assert pairre.load_run(tmp_path / "saved", "cpu").unfinished is None
    assert pairre.train(graph, quick, out=tmp_path / "run", progress=False, device="cpu").unfinished is None
