"""The command `ensemble`, from run folders to a run folder that other commands take."""

import pytest

import pairre
from pairre.rules import Rule, write_rules

QUICK = ("train.steps=40", "train.batch=32", "sampling.negatives=8", "model.dim=6")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tests.conftest import planted_graph

    path = tmp_path_factory.mktemp("runs")
    for name in ("pairre", "distmult"):
        settings = [*QUICK, f"model.name={name}"]
        pairre.train(planted_graph(), overrides=settings, out=path / name, progress=False, device="cpu")
    pairre.train(planted_graph(), overrides=[*QUICK, "train.seed=1"], out=path / "seed-1", progress=False, device="cpu")
    pairre.train(planted_graph(seed=3), overrides=QUICK, out=path / "other", progress=False, device="cpu")
    return path


def test_members_make_a_run_that_every_command_takes(folder, tmp_path, call):
    write_rules(tmp_path / "rules.tsv", [Rule(("next",), "previous", "inverse", 1.0)])
    made, rules = tmp_path / "made", ("--rules", tmp_path / "rules.tsv", "--combine", "noisy-or", "--entity-rules")
    code, out, err = call("ensemble", folder / "pairre", folder / "distmult", *rules, "--out", made, "--device", "cpu")
    assert (code, err) == (0, "")
    assert all(
        word in out
        for word in ("pairre", "distmult", "1 rules", "entity rules", "left out of the fit", "pairre evaluate")
    )
    (tmp_path / "some.csv").write_text("e3,next,e4\n")
    commands = (
        ("evaluate", made),
        ("predict", made, "--head", "e3", "--relation", "next"),
        ("discover", made, "--out", tmp_path / "links.csv", "-k", "3"),
        ("why", made, "--head", "e3", "--relation", "previous", "--tail", "e2"),
        ("export", made, "--out", tmp_path / "v.parquet"),
        ("similar", made, "e3"),
        ("calibrate", made),
        ("score", made, tmp_path / "some.csv"),
        ("report", made, "--out", tmp_path / "report.html"),
    )
    for command in commands:
        code, _, err = call(*command, "--device", "cpu")
        assert code == 0, (command, err)
    assert call("check", made)[0] == 0


def test_runs_of_pairre_become_one(folder, tmp_path, call):
    code, out, _ = call("ensemble", folder / "pairre", folder / "seed-1", "--out", tmp_path / "one", "--device", "cpu")
    assert code == 0
    assert "seed-1" in out
    assert pairre.load_run(tmp_path / "one", "cpu").recipe.model.dim == 12


def test_a_single_run_and_rules_that_name_entities(folder, tmp_path, call):
    made = tmp_path / "made"
    code, out, err = call("ensemble", folder / "pairre", "--entity-rules", "--out", made, "--device", "cpu")
    assert (code, err) == (0, "")
    assert "entity-rules" in out
    (tmp_path / "more.csv").write_text("new,next,e4\n")
    code, _, err = call("extend", made, tmp_path / "more.csv", "--out", tmp_path / "larger")
    assert (code, "an ensemble is made of runs, not trained" in err) == (2, True)


def test_errors_are_one_line(folder, tmp_path, call):
    code, _, err = call("ensemble", folder / "pairre", "--out", tmp_path / "one")
    assert (code, "at least two runs, or one and rules" in err) == (2, True)
    code, _, err = call("ensemble", folder / "pairre", folder / "other", "--out", tmp_path / "one", "--device", "cpu")
    assert (code, "from another graph" in err) == (2, True)
    code, _, err = call("ensemble", folder / "pairre", folder / "distmult", "--out", folder / "other")
    assert (code, "exists" in err) == (2, True)
    assert not (tmp_path / "one").exists()
    call("ensemble", folder / "pairre", folder / "distmult", "--out", tmp_path / "made", "--device", "cpu")
    code, _, err = call("train", "--resume", "--out", tmp_path / "made")
    assert (code, "an ensemble is made of runs, not trained" in err) == (2, True)
