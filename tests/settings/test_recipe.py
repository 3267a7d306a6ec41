"""Recipes: layers, round trip, and refusals that name the path."""

import dataclasses
import json
from pathlib import Path

import pytest

from pairre.models import MODELS
from pairre.settings.recipe import (
    Recipe,
    default_recipe,
    from_values,
    keys,
    load_recipe,
    override,
    recipe_names,
    recipe_purposes,
    resolve,
)
from pairre.support.errors import RecipeError


def test_toml_round_trip(tmp_path):
    recipe = override(Recipe(), ["train.lr=3e-4", "loss.name=margin", "loss.subsampling=false", "model.dim=7"])
    file = tmp_path / "r.toml"
    file.write_text(recipe.to_toml())
    assert load_recipe(file) == recipe


def test_later_layers_win(graph, tmp_path):
    file = tmp_path / "r.toml"
    file.write_text("[train]\nlr = 0.5\nbatch = 9\n")
    recipe = resolve(graph, file, ["train.lr=0.25"])
    assert (recipe.train.lr, recipe.train.batch, recipe.model.dim) == (0.25, 9, Recipe().model.dim)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.batches=3", r"train\.batches: unknown key; did you mean 'batch'\?"),
        ("trian.lr=3", r"trian: unknown section; did you mean 'train'\?"),
        ("train.batch=1.5", r"train\.batch: a whole number expected, not a number \(1\.5\)"),
        ("train.batch=true", r"train\.batch: a whole number expected, not true or false"),
        ("train.lr=fast", r"train\.lr: a number expected, not a string"),
        ("train.lr=nan", r"train\.lr: a finite number expected"),
        ("train.batch=0", r"train\.batch: 0 is below the least value, 1"),
        ("loss.name=hinge", r"loss\.name: 'hinge' is not one of"),
        ("loss.subsampling=1", r"loss\.subsampling: true or false expected, not a whole number"),
        ("train.lr", r"write section\.key=value"),
        ("lr=1", r"write section\.key=value"),
        ("train.lr=[1]", r"train\.lr: a number expected, not a list"),
        ("model.dropout=0.5", r"model\.dropout: a list of numbers expected, as in \[0\.2, 0\.5\], not a number"),
        ("model.dropout=[0.5, true]", r"model\.dropout: a number expected, not true or false"),
        ("model.dropout=[-0.5]", r"model\.dropout: -0\.5 is below the least value, 0"),
    ],
)
def test_refusals_name_the_path(setting, message):
    with pytest.raises(RecipeError, match=message):
        override(Recipe(), [setting])


def test_a_whole_number_will_do_for_a_number():
    assert override(Recipe(), ["train.lr=1"]).train.lr == 1.0


def test_files_are_named_in_errors(tmp_path):
    file = tmp_path / "r.toml"
    file.write_text("[train]\nepoch = 3\n")
    with pytest.raises(RecipeError, match=r"r\.toml: train\.epoch: unknown key"):
        load_recipe(file)
    file.write_text("[train\n")
    with pytest.raises(RecipeError, match=r"r\.toml: not valid TOML"):
        load_recipe(file)
    file.write_bytes(b"\xff")
    with pytest.raises(RecipeError, match=r"r\.toml: not valid TOML"):
        load_recipe(file)
    with pytest.raises(RecipeError, match="no such recipe file or name"):
        load_recipe("no-such-recipe")
    with pytest.raises(RecipeError, match="a section of keys expected"):
        from_values({"train": 3})


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_load(name):
    recipe = load_recipe(name)
    assert recipe.model.name in {model.name for model in MODELS}


@pytest.mark.parametrize("name", ["umls", "sports"])
def test_recipes_are_the_best_of_the_search_that_is_on_record(name):
    files = sorted((Path(__file__).parents[2] / "docs" / "results").glob("small-graphs-*.json"))
    record = json.loads(files[-1].read_text(encoding="utf-8"))["graphs"][name]
    assert record["best"] == max(record["search"], key=lambda entry: entry["valid_mrr"])
    assert from_values(record["recipe"]) == load_recipe(name)
    assert record["met"]


def test_every_key_has_a_help_text():
    assert all(declaration.metadata["help"] for _, declaration in keys())
    assert len(list(keys())) == sum(len(section) for section in dataclasses.asdict(Recipe()).values())


def test_defaults_come_from_the_size_of_the_graph(graph):
    recipe = default_recipe(graph)
    assert recipe.train.batch <= len(graph.train)
    assert resolve(graph) == recipe


def test_differences_are_listed():
    changed = override(Recipe(), ["train.lr=0.5", "model.dim=9"])
    assert changed.differences(Recipe()) == ["model.dim: 9, not 200", "train.lr: 0.5, not 0.001"]
    assert Recipe().differences(Recipe()) == []


@pytest.mark.parametrize("missing", range(4))
def test_k_vs_all_asks_each_question_once_of_all_entities(graph, missing):
    needed = ["sampling.negatives=0", "loss.subsampling=false", "sampling.filter=true", "loss.query_balance=0"]
    other = ["sampling.negatives=8", "loss.subsampling=true", "sampling.filter=false", "loss.query_balance=0.2"]
    assert resolve(graph, None, ["loss.name=k-vs-all", *needed]).loss.name == "k-vs-all"
    needed[missing] = other[missing]
    with pytest.raises(RecipeError, match=r"negatives and loss\.query_balance to 0, loss\.subsampling to false"):
        resolve(graph, None, ["loss.name=k-vs-all", *needed])


def test_smoothing_and_dropout_are_shares(graph):
    with pytest.raises(RecipeError, match=r"loss\.smoothing: a share below 1"):
        resolve(graph, None, ["loss.smoothing=1.0"])
    with pytest.raises(RecipeError, match=r"model\.dropout: shares below 1 expected, not 1"):
        resolve(graph, None, ["model.dropout=[0.2, 1.0]"])


def test_every_model_has_the_recipe_that_was_measured():
    files = sorted((Path(__file__).parents[2] / "docs" / "results").glob("models-small-*.json"))
    measured = [row for file in files for row in json.loads(file.read_text(encoding="utf-8"))["models"]]
    rows = {row["model"]: row for row in measured}  # the newest of each
    assert set(rows) == {model.name for model in MODELS}
    for name, row in rows.items():
        assert load_recipe(name) == from_values(row["recipe"])
        best = max(row["search"], key=lambda entry: entry["mean"])
        assert row["recipe"] == best["settings"]


def test_every_recipe_says_what_it_is_for(call):
    purposes = recipe_purposes()
    assert all(len(purpose) > 20 for purpose in purposes.values())
    assert "FB15k with the settings published" in call("recipes")[1]
