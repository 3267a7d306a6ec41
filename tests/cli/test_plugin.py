"""Plug-ins: a score function and a loss from outside the package train, evaluate and answer by name alone."""

from pathlib import Path

import pytest

from pairre.models.contract import REGISTRY
from pairre.settings import registry
from pairre.support import plugins
from pairre.training import LOSSES

PLUGIN = '''
from pairre.models import Model, Query
from pairre.training import loss

class Scaled(Model):
    """score(h, r, t) = −‖h ∘ r − t‖₁."""
    name = "scaled"
    formula = "−‖h ∘ r − t‖₁"
    paper = "none"
    metric = "l1"
    relation_parts = {"vector": 1}

    def tail_query(self, h, r) -> Query:
        return h * r.vector, None

    def head_query(self, r, t) -> Query:
        return t, r.vector

@loss("hinge", "squared hinge of every score")
def hinge(positive, negative, known, weight, recipe):
    true = (recipe.margin - positive).clamp(min=0).square()
    false = (recipe.margin + negative).clamp(min=0).square()
    if known is not None:
        false = false.masked_fill(known, 0)
    return (weight * (true + false.mean(1))).sum()
'''
SETTINGS = ("model.name=scaled", "loss.name=hinge", "loss.margin=1", "model.dim=16", "train.steps=20", "train.batch=32")


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Write the plug-in as a module of the working folder, and forget afterwards what it registers."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "my_scores.py"
    file.write_text(PLUGIN, encoding="utf-8")
    yield file
    for names in (REGISTRY, LOSSES, registry.LOSSES):
        names.pop("scaled", None)
        names.pop("hinge", None)


def settings():
    return [part for setting in SETTINGS for part in ("--set", setting)]


def test_a_model_and_a_loss_from_outside_train_and_evaluate(call, plugin, triples_file, tmp_path):
    run = tmp_path / "run"
    code, _, said = call("--plugin", plugin, "train", triples_file, "--out", run, *settings())
    assert code == 0, said
    code, printed, said = call("--plugin", plugin, "evaluate", run)
    assert code == 0, said
    assert "MRR" in printed
    code, printed, _ = call("--plugin", plugin, "models")
    assert code == 0
    assert "scaled" in printed


def test_a_run_of_an_outside_model_says_which_plug_in_is_missing(call, plugin, triples_file, tmp_path):
    run = tmp_path / "run"
    assert call("--plugin", plugin, "train", triples_file, "--out", run, *settings())[0] == 0
    for names in (REGISTRY, LOSSES, registry.LOSSES):
        names.pop("scaled", None)
        names.pop("hinge", None)
    code, _, said = call("evaluate", run)
    assert code == 2
    assert "scaled" in said
    assert "--plugin" in said


def test_reasons_and_extensions_of_a_run_with_an_outside_loss_say_which_plug_in_is_missing(
    call, plugin, triples_file, tmp_path
):
    run = tmp_path / "run"
    assert call("--plugin", plugin, "train", triples_file, "--out", run, *settings()[2:])[0] == 0
    asked = ("why", run, "--head", "e1", "--relation", "next", "--tail", "e2")
    assert call("--plugin", plugin, *asked)[0] == 0
    for names in (LOSSES, registry.LOSSES):
        names.pop("hinge")
    new = tmp_path / "new.tsv"
    new.write_text("x\tnext\te1\n", encoding="utf-8")
    for command in (asked, ("extend", run, new, "--out", tmp_path / "grown")):
        code, printed, said = call(*command)
        assert (code, printed, len(said.splitlines())) == (2, "", 1), said
        assert "hinge" in said
        assert "--plugin" in said


@pytest.mark.parametrize("name", ["no_such_module_anywhere", "missing.py"])
def test_a_plug_in_that_is_not_there(call, name):
    code, _, said = call("--plugin", name, "models")
    assert code == 2
    assert f"--plugin {name}" in said
    assert name not in {Path(loaded).name for loaded in plugins.loaded}  # other processes would load it, too
