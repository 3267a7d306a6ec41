"""Tuning: ranges checked, trials judged by validation alone, the study continued after anything, memory given back."""

import contextlib
import gc
import re
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pairre import load_recipe, train
from pairre.models import Model
from pairre.settings import from_values, override
from pairre.studies.tune import DEFAULT_SPACE, Choices, Range, TuningInterruptedError, load_space, read_space, tune
from pairre.support.errors import GraphError, MissingExtraError, PairREError, RecipeError, RunError, TrainingError

pytest.importorskip("optuna", reason="the extra `tune` is not installed")

MODULE = sys.modules[tune.__module__]
SPACE = {"train.lr": Range(1e-3, 0.1, log=True), "loss.margin": Choices((3.0, 6.0))}
QUICK = from_values(
    {
        "model": {"dim": 8},
        "sampling": {"negatives": 8},
        "train": {"batch": 32, "steps": 12, "validate_every": 4, "schedule": "linear"},
    }
)


@pytest.fixture(autouse=True)
def little_garbage():
    """Collecting takes long among everything that is imported, and these tests collect after every trial."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def run(graph, out, trials=2, **more):
    attempts = []
    options = {"recipe": QUICK, "space": SPACE} | more
    found = tune(graph, out=out, trials=trials, report=attempts.append, **options)
    return found, attempts


@pytest.mark.slow
def test_the_same_call_goes_on_to_the_same_result(graph, tmp_path):
    whole, attempts = run(graph, tmp_path / "whole", trials=4, seed=4)
    assert [a.number for a in attempts] == [1, 2, 3, 4]
    assert whole.mrr == max(a.mrr for a in attempts) == attempts[-1].best
    assert whole.settings.keys() == whole.importances.keys() == SPACE.keys()
    _, first = run(graph, tmp_path / "parts", seed=4)
    parts, rest = run(graph, tmp_path / "parts", trials=4, seed=4)
    assert first + rest == attempts
    assert parts == whole
    assert run(graph, tmp_path / "parts", trials=4, seed=4, timeout=0) == (whole, [])
    assert run(graph, tmp_path / "other", trials=1, seed=5)[1][0].settings != attempts[0].settings


def test_the_best_recipe_reaches_what_its_trial_reached(graph, tmp_path):
    found, _ = run(graph, tmp_path / "tuned")
    again = train(replace(graph, test=graph.test[:0]), tmp_path / "tuned" / "best.toml", device="cpu", progress=False)
    assert again.recipe == found.recipe
    assert max(e["valid"]["mrr"] for e in again.history if "valid" in e) == found.mrr


def test_test_triples_take_no_part(graph, tmp_path):
    other = replace(graph, test=graph.train[:5])
    found = [run(g, tmp_path / str(i)) for i, g in enumerate((graph, other))]
    assert found[0] == found[1]


def test_trials_that_fall_behind_are_pruned(graph, tmp_path):
    space = {"train.lr": Choices((0.05, 1e-6))}
    _, attempts = run(graph, tmp_path / "tuned", trials=9, space=space)
    pruned = [a for a in attempts if a.state == "pruned"]
    assert pruned
    assert {a.settings["train.lr"] for a in pruned} == {1e-6}


@pytest.mark.parametrize(
    "failure",
    [TrainingError("the loss became nan"), torch.OutOfMemoryError("no room"), RuntimeError("can't allocate memory")],
    ids=["diverged", "gpu", "cpu"],
)
def test_a_failed_trial_counts_and_tuning_goes_on(graph, tmp_path, monkeypatch, failure):
    calls = []

    def sometimes(*arguments, **options):
        calls.append(1)
        if len(calls) != 2:
            raise failure
        return train(*arguments, **options)

    monkeypatch.setattr(MODULE, "train", sometimes)
    found, attempts = run(graph, tmp_path / "tuned", trials=3)
    assert [a.state for a in attempts] == ["failed", "complete", "failed"]
    assert attempts[0].error == str(failure)
    assert (attempts[0].best, attempts[2].best) == (None, found.mrr)
    with pytest.raises(TrainingError, match="no trial has come to its end; the last one"):
        run(graph, tmp_path / "none", trials=1)
    monkeypatch.setattr(MODULE, "train", lambda *a, **o: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(graph, tmp_path / "bug")


def test_memory_is_given_back_between_trials(graph, tmp_path):
    def models():
        return sum(issubclass(type(thing), Model) for thing in gc.get_objects())

    there = []
    tune(graph, QUICK, out=tmp_path / "tuned", space=SPACE, trials=2, report=lambda _: there.append(models()))
    assert there == [0, 0]


def test_no_trial_begins_after_the_timeout(graph, tmp_path):
    run(graph, tmp_path / "tuned", trials=1)
    assert run(graph, tmp_path / "tuned", trials=9, timeout=0)[1] == []


def test_a_timeout_before_the_first_trial_leaves_no_folder(graph, tmp_path):
    with pytest.raises(TrainingError, match="timeout 0: over before a trial could begin"):
        run(graph, tmp_path / "tuned", timeout=0)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "tuned").mkdir()
    with pytest.raises(TrainingError, match="timeout 0"):
        run(graph, tmp_path / "tuned", timeout=0)
    assert (tmp_path / "tuned").exists()  # somebody else's
    for wrong in ({"timeout": float("nan")}, {"timeout": -1.0}, {"trials": 0}):
        with pytest.raises(RecipeError, match="at least one trial, and seconds from 0 on"):
            run(graph, tmp_path / "new", **wrong)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("where", ["report", "validation"])
def test_ctrl_c_that_other_code_swallows_is_not_lost(graph, tmp_path, where, monkeypatch):
    """One of five was: pyarrow's `to_numpy` looks for pandas, and an interrupt meanwhile goes nowhere."""
    reports = []

    def swallow(*_):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    def report(attempt):
        reports.append(attempt.number)
        swallow()

    if where == "validation":
        monkeypatch.setattr(MODULE, "_suggest", lambda *_: swallow() or 0.01)
    with pytest.raises(TuningInterruptedError):
        tune(graph, QUICK, out=tmp_path / "tuned", space=SPACE, trials=3, report=report)
    assert reports == ([1] if where == "report" else [])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_keeps_the_trials_that_ended(graph, tmp_path):
    def stop(attempt):
        if attempt.number == 1:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(TuningInterruptedError):
        tune(graph, QUICK, out=tmp_path / "tuned", space=SPACE, trials=3, report=stop)
    assert [a.number for a in run(graph, tmp_path / "tuned")[1]] == [2]


def test_an_unknown_device_leaves_no_folder(graph, tmp_path):
    with pytest.raises(PairREError, match="nonsense"):
        tune(graph, out=tmp_path / "study", trials=1, device="nonsense")
    assert not (tmp_path / "study").exists()


def test_a_set_key_is_not_tuned(graph, tmp_path):
    found, _ = run(graph, tmp_path / "tuned", trials=1, overrides=["loss.margin=4"])
    assert found.settings.keys() == {"train.lr"}
    assert found.recipe.loss.margin == 4
    with pytest.raises(RecipeError, match="nothing is left to tune"):
        run(graph, tmp_path / "none", overrides=["loss.margin=4", "train.lr=0.1"])


def test_recipes_that_weigh_otherwise_keep_their_weights(graph, tmp_path):
    """Also one whose loss allows none; its trial would fail."""
    asks_all = ["loss.name=k-vs-all", "loss.subsampling=false", "sampling.negatives=0"]
    for name, settings, flattened in (
        ("paper", [], False),
        ("all", asks_all, False),
        ("flattened", ["loss.query_balance=0.5", "loss.subsampling=false"], True),
    ):
        found, _ = run(graph, tmp_path / name, trials=1, recipe=override(QUICK, settings), space=None)
        assert found.settings.keys() == DEFAULT_SPACE.keys() - (set() if flattened else {"loss.query_balance"})


def test_the_default_space_is_that_of_the_how_to_page():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "settings.md").read_text(encoding="utf-8")
    assert read_space(tomllib.loads(re.search(r"```toml[^\n]*\n(.*?)```", page, re.S).group(1))) == DEFAULT_SPACE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train.speed = [1, 2]", "train.speed: unknown key"),
        ("fit.lr = [1, 2]", "fit: unknown section"),
        ("train = 3", "train: a section of keys expected"),
        ("train.lr = ['fast']", "train.lr: a number expected, not a string"),
        ("model.dim = [100, 0]", "model.dim: 0 is below the least value"),
        ("model.dim = {low = 1.5, high = 8}", "model.dim: a whole number expected"),
        ("train.lr = {low = 1}", "train.lr: write a list of choices, or"),
        ("train.lr = {low = 1, high = 2, steps = 3}", "train.lr: write a list of choices, or"),
        ("train.lr = {low = 2, high = 1}", "train.lr: low must be below high"),
        ("train.lr = {low = 0, high = 1, log = true}", "train.lr: low must be below high, and above 0"),
        ("train.lr = {low = 1, high = 2, log = 1}", "train.lr: log: true or false expected"),
        ("train.lr = []", "train.lr: write a list of choices, or"),
        ("loss.name = {low = 'margin', high = 'logistic'}", "loss.name: has no range"),
        ("loss.name = ['margin', 'hinge']", "loss.name: 'hinge' is not one of"),
        ("", "no key to tune"),
        ("= 3", "not valid TOML"),
    ],
)
def test_a_wrong_space_is_refused_by_key(tmp_path, text, words):
    (tmp_path / "space.toml").write_text(text)
    with pytest.raises(RecipeError, match=r"space\.toml: ") as refused:
        load_space(tmp_path / "space.toml")
    assert words in str(refused.value)


def test_ranges_of_a_file(tmp_path):
    text = (
        "[train]\nlr = {low = 1e-4, high = 1, log = true}\n[model]\ndim = {low = 8, high = 64}\n[loss]\nmargin = [3, 6]"
    )
    (tmp_path / "space.toml").write_text(text)
    space = load_space(tmp_path / "space.toml")
    assert space == {"train.lr": Range(1e-4, 1.0, True), "model.dim": Range(8, 64), "loss.margin": Choices((3.0, 6.0))}
    with pytest.raises(RecipeError, match=r"none.toml: no such file"):
        load_space(tmp_path / "none.toml")


def test_a_study_of_something_else_is_refused(graph, tmp_path):
    out = tmp_path / "tuned"
    run(graph, out, trials=1)
    for more, what in [({"seed": 1}, "seed"), ({"space": {"train.lr": Range(1.0, 2.0)}}, "space")]:
        with pytest.raises(RunError, match=f"tuned with another {what} before"):
            run(graph, out, **more)
    with pytest.raises(RunError, match="another recipe"):
        run(graph, out, recipe=replace(QUICK, train=replace(QUICK.train, steps=7)))
    with pytest.raises(RunError, match="another graph"):
        run(replace(graph, train=graph.train[1:]), out)
    with pytest.raises(GraphError, match="valid split is empty"):
        run(replace(graph, valid=graph.valid[:0]), out)
    (out / "study.db").write_text("no database" * 500)
    with pytest.raises(RunError, match=r"study\.db: damaged"):
        run(graph, out)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(RunError, match="nothing was tuned there"):
        run(graph, tmp_path / "other")


def test_without_optuna_the_extra_is_named(graph, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pairre\[tune\]'"):
        run(graph, tmp_path / "tuned")
    assert not (tmp_path / "tuned").exists()


STUCK = """
import sys, time
from importlib import import_module
from pairre import cli
module = import_module("pairre.studies.tune")  # `pairre.studies` has a function of this name
train, calls = module.train, []

def stuck(*arguments, on_validation, **options):
    def watch(step, mrr):
        on_validation(step, mrr)
        if len(calls) == 3:
            print("in the middle of the third trial", file=sys.stderr, flush=True)
            time.sleep(600)

    calls.append(1)
    return train(*arguments, on_validation=watch, **options)

module.train = stuck
cli.main(sys.argv[1:])
"""


@pytest.mark.slow
def test_the_command_and_a_process_that_is_killed(call, triples_file, tmp_path):
    """SIGKILL in the middle of a trial loses that trial and nothing else: it is done again with the same settings."""
    (tmp_path / "space.toml").write_text("[train]\nlr = {low = 1e-3, high = 0.1, log = true}\n")
    (tmp_path / "quick.toml").write_text(QUICK.to_toml())
    files = ["--recipe", tmp_path / "quick.toml", "--space", tmp_path / "space.toml"]
    command = ["tune", triples_file, *files, "--trials", 4, "--device", "cpu", "--out"]
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, *map(str, command), tmp_path / "killed"], stderr=subprocess.PIPE, text=True
    )
    with process:
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("in the middle"):
                process.kill()
    assert process.returncode == -signal.SIGKILL, "".join(said)
    code, printed, said = call(*command, tmp_path / "killed")
    assert code == 0, said
    assert "best of 4 trials" in printed
    assert "importance" in printed
    assert f"pairre train {triples_file} --recipe {tmp_path / 'killed' / 'best.toml'}" in printed
    again = [line for line in said.splitlines() if line.startswith("trial")]
    assert [line.split()[1] for line in again] == ["3/4", "4/4"]
    code, _, said = call(*command, tmp_path / "unbroken")
    assert code == 0
    assert [line for line in said.splitlines() if line.startswith("trial")][2:] == again
    recipes = [load_recipe(tmp_path / folder / "best.toml") for folder in ("killed", "unbroken")]
    assert recipes[0] == recipes[1]


def test_old_key_names_are_tuned_under_their_new_names(graph, tmp_path):
    space = read_space({"loss": {"flattening": [0.0, 0.5]}, "train": {"lr": [0.01, 0.02]}})
    assert space == {"loss.query_balance": Choices((0.0, 0.5)), "train.lr": Choices((0.01, 0.02))}
    fixed = ["loss.flattening=0.5", "loss.subsampling=false"]
    found, _ = run(graph, tmp_path / "tuned", trials=1, space=space, overrides=fixed)
    assert found.settings.keys() == {"train.lr"}
