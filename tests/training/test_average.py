"""Averaged weights: of which steps, what is validated, what is kept."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pairre
from conftest import resumed
from pairre.graph import Graph
from pairre.models import MODELS
from pairre.rules import Rule
from pairre.settings.recipe import TrainRecipe, override, resolve
from pairre.support.errors import RecipeError
from pairre.training.average import Average
from pairre.training.trainer import Trainer

CPU = torch.device("cpu")
SAME = [Rule(("next",), "beside", "equivalence", 1.0)]


@pytest.fixture
def recipe(quick):
    return override(quick, ["train.schedule=constant", "train.average=0.5"])


@given(steps=st.integers(1, 5000), share=st.floats(1e-6, 1))
def test_looks_are_evenly_spaced_to_the_last_step(steps, share):
    average = Average({}, TrainRecipe(steps=steps, average=share))
    seen = [step for step in range(1, steps + 1) if average.due(step)]
    assert 1 <= len(seen) <= 100
    assert seen[-1] == steps
    assert seen[0] > steps - max(1, round(share * steps))
    assert {b - a for a, b in pairwise(seen)} <= {average.every}
    assert [average.looks(step) for step in seen] == list(range(1, len(seen) + 1))
    step, reached = 0, []
    while step < steps:
        step += average.wait(step)
        reached.append(step)
    assert reached == seen


@pytest.mark.parametrize("rules", [[], SAME], ids=["free", "tied"])
@pytest.mark.parametrize("settings", [[], ["model.storage=bfloat16"], ["train.rows=touched"]], ids=str)
def test_the_mean_is_that_of_the_last_weights(graph, recipe, rules, settings):
    recipe = override(recipe, ["train.steps=10", "rules.mode=tie", *settings])
    trainer, seen = Trainer(graph, recipe, CPU, rules), []
    for step in range(1, 11):
        trainer.step()
        trainer.settle()
        if step > 5:
            seen.append({name: table.float().clone() for name, table in trainer.tables.items()})
    last = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    with trainer.averaged():
        for name, table in trainer.tables.items():
            mean = torch.stack([tables[name] for tables in seen]).mean(0).to(table.dtype)
            torch.testing.assert_close(table, mean)
        made = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        if rules:
            assert torch.equal(made["relation"][0], made["relation"][2])
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, last[name])
        assert not torch.equal(value, made[name])
    with pytest.raises(ZeroDivisionError), trainer.averaged():
        _ = 1 / 0
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, last[name])
    trainer.end()
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, made[name])


@pytest.mark.parametrize("name", [model.name for model in MODELS if model.constraints])
def test_the_mean_keeps_the_constraints(graph, recipe, name):
    trainer = Trainer(graph, override(recipe, [f"model.name={name}", "train.steps=6", "train.lr=0.3"]), CPU)
    trainer.step(6)
    with trainer.averaged():
        for table in trainer.model.constraints:
            rows = trainer.tables[table]
            torch.testing.assert_close(trainer.model.constrain(table, rows.clone()), rows)


def test_statistics_of_batches_are_averaged_too(graph, recipe):
    trainer = Trainer(graph, override(recipe, ["model.name=conve", "train.steps=6"]), CPU)
    trainer.step(6)
    last = trainer.model.mean_hidden.clone()
    with trainer.averaged():
        assert not torch.equal(trainer.model.mean_hidden, last)
    assert torch.equal(trainer.model.mean_hidden, last)


def test_a_resumed_run_ends_in_the_same_bits(graph, recipe):
    resumed(lambda: Trainer(graph, override(recipe, ["train.steps=8", "train.average=0.7"]), CPU))


def test_what_is_validated_is_what_is_kept(graph, recipe, tmp_path):
    """Raw weights until averaging begins, then their mean; the folder has the best of these."""
    recipe = override(recipe, ["train.lr=0.05", "train.patience=0"])
    run = pairre.train(graph, recipe, out=tmp_path / "run", progress=False, device="cpu")
    trainer, expected = Trainer(graph, recipe, CPU), []
    for _ in range(3):
        trainer.step(20)
        with trainer.averaged():
            expected.append(pairre.evaluate(pairre.Run(graph, recipe, trainer.model, []), "valid")["both"]["mrr"])
    assert [entry["valid"]["mrr"] for entry in run.history if "valid" in entry] == expected
    assert pairre.evaluate(run, "valid")["both"]["mrr"] == max(expected)


@pytest.mark.parametrize("kept", [True, False])
def test_without_validation_the_mean_is_kept(graph, recipe, kept, tmp_path):
    bare = Graph("bare", graph.entities, graph.relations, graph.train, graph.valid[:0], graph.test)
    out = tmp_path / "run" if kept else None
    run = pairre.train(bare, recipe, out=out, progress=False, device="cpu")
    trainer = Trainer(bare, recipe, CPU)
    trainer.step(recipe.train.steps)
    assert not torch.equal(run.model.entity, trainer.model.entity)
    with trainer.averaged():
        assert torch.equal(run.model.entity, trainer.model.entity)


def test_a_share_is_at_most_one(graph, recipe):
    with pytest.raises(RecipeError, match=r"train\.average: a share of at most 1 expected, not 1\.5"):
        resolve(graph, override(recipe, ["train.average=1.5"]))
