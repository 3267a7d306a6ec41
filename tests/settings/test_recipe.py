"""Recipes: layers, round trip, and refusals that name the path."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from conftest import QUICK
from pairre.graph import load_graph
from pairre.models import models
from pairre.settings import (
    ModelRecipe,
    Recipe,
    TrainRecipe,
    default_recipe,
    from_values,
    graph_recipes,
    keys,
    load_recipe,
    load_stored_recipe,
    override,
    presets,
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
    with pytest.raises(RecipeError, match=r"r\.toml: invalid UTF-8"):
        load_recipe(file)
    with pytest.raises(RecipeError, match="no such recipe file or name"):
        load_recipe("no-such-recipe")
    with pytest.raises(RecipeError, match="a section of keys expected"):
        from_values({"train": 3})


@pytest.mark.parametrize("name", [*graph_recipes(), *presets()])
def test_shipped_recipes_load(name, graph):
    recipe = load_recipe(name)
    assert recipe.model.name in {model.name for model in models()}
    if name in presets():
        assert resolve(graph, name, ["model.dim=12"]).train.steps > 0


@pytest.mark.parametrize("name", ["umls", "sports"])
def test_recipes_are_the_best_of_the_search_that_is_on_record(name):
    files = sorted((Path(__file__).parents[2] / "docs" / "results").glob("small-graphs-*.json"))
    record = json.loads(files[-1].read_text(encoding="utf-8"))["graphs"][name]
    assert record["best"] == max(record["search"], key=lambda entry: entry["valid_mrr"])
    assert from_values(record["recipe"], stored=True) == load_recipe(name)
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


def test_smoothing_and_dropout_are_fractions(graph):
    with pytest.raises(RecipeError, match=r"loss\.smoothing: a fraction below 1"):
        resolve(graph, None, ["loss.smoothing=1.0"])
    with pytest.raises(RecipeError, match=r"model\.dropout: fractions below 1 expected, not 1"):
        resolve(graph, None, ["model.dropout=[0.2, 1.0]"])


def test_measured_models_have_the_recipe_that_was_measured():
    files = sorted((Path(__file__).parents[2] / "docs" / "results").glob("models-small-*.json"))
    measured = [row for file in files for row in json.loads(file.read_text(encoding="utf-8"))["models"]]
    rows = {row["model"]: row for row in measured}  # the newest of each
    assert rows.keys() <= {model.name for model in models()}
    for name, row in rows.items():
        assert load_recipe(f"small/{name}") == from_values(row["recipe"], stored=True)
        best = max(row["search"], key=lambda entry: entry["mean"])
        assert row["recipe"] == best["settings"]


def test_every_recipe_says_what_it_is_for(call):
    purposes = graph_recipes() | presets()
    assert all(len(purpose) > 20 for purpose in purposes.values())
    assert "FB15k with the settings published" in call("recipes")[1]


def test_presets_and_recipes_have_names_apart():
    assert all("/" in name for name in presets())
    assert not any("/" in name for name in graph_recipes())
    assert load_recipe("fb15k-237/complex-margin").model.name == "complex"
    assert load_recipe("small/simple+").model.name == "simple+"


def test_an_earlier_name_of_a_preset_is_understood(caplog):
    assert load_recipe("fb15k-237-complex") == load_recipe("fb15k-237/complex")
    assert caplog.messages == ["recipe fb15k-237-complex is now fb15k-237/complex"]


def test_the_name_of_a_model_is_no_recipe():
    with pytest.raises(RecipeError, match=r"^pairre: a model, not a recipe; write small/pairre, or --set model.name="):
        load_recipe("pairre")
    with pytest.raises(RecipeError, match=r"write fb15k-237/complex or small/complex"):
        load_recipe("complex")
    with pytest.raises(RecipeError, match=r"did you mean 'small/complex'\?; names: codex-s, .*small/MODEL"):
        load_recipe("smal/complex")


OLD = """
[model]
unit = true
[loss]
relations = 0.5
weighting = false
flattening = 0.25
[sampling]
share = 1
typed = true
[train]
average = 0.0
rows = "touched"
"""
CHANGES = ["model.unit_norm=true", "loss.relation_weight=0.5", "loss.subsampling=false", "loss.query_balance=0.25"]
CHANGES += ["sampling.chunk_size=1", "sampling.same_type=true", "train.update_rows=touched"]


def test_earlier_names_of_keys_are_understood(tmp_path, caplog):
    file = tmp_path / "old.toml"
    file.write_text(OLD, encoding="utf-8")
    assert load_stored_recipe(file) == override(Recipe(), CHANGES)
    assert caplog.messages == [], "nobody edits the recipe of a run folder"
    assert load_recipe(file) == override(Recipe(), CHANGES)
    assert len(caplog.messages) == len(CHANGES)
    caplog.clear()
    assert override(Recipe(), ["loss.flattening=0.5"]).loss.query_balance == 0.5
    assert caplog.messages == ["loss.flattening is now loss.query_balance"]
    with pytest.raises(RecipeError, match=r"train\.average: removed; .*train\.schedule=linear"):
        override(Recipe(), ["train.average=0.5"])


def test_a_stored_recipe_may_name_a_loss_that_is_not_loaded(graph, tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text('[loss]\nname = "of-a-plug-in"\n', encoding="utf-8")
    recipe = load_stored_recipe(file)
    for refused in (lambda: load_recipe(file), lambda: resolve(graph, recipe)):
        with pytest.raises(RecipeError, match=r"loss\.name: 'of-a-plug-in' is not one of self-adversarial, "):
            refused()


def test_a_stored_recipe_names_the_model_that_is_not_loaded(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text('[model]\nname = "mine"\n', encoding="utf-8")
    with pytest.raises(RecipeError, match=r"uses the model 'mine', which no loaded module defines; .* --plugin"):
        load_stored_recipe(file)


@pytest.mark.parametrize(
    ("settings", "rules", "message"),
    [
        (["model.norm=l1", "model.name=complex"], False, r"model\.norm: complex has dot, not l1"),
        (["model.dropout=[0.5]", "model.name=conve"], False, r"model\.dropout: .*\(input, maps, hidden\), not 1"),
        (["model.unit_norm=true", "model.name=simple+"], False, r"model\.unit_norm: rows of simple\+"),
        (["loss.relation_weight=0.1", "model.name=conve"], False, r"loss\.relation_weight: conve cannot"),
        (["model.dim=7", "model.name=conve"], False, r"model\.dim: conve"),
        (["rules.mode=tie", "model.name=transe"], True, r"rules\.mode: transe cannot .*simple\+"),
        (["sampling.same_type=true"], False, r"sampling\.same_type: ring has no types"),
        (["model.name=nothing"], False, r"model\.name: no model 'nothing'"),
    ],
)
def test_combinations_are_refused_in_one_place(graph, settings, rules, message):
    with pytest.raises(RecipeError, match=message):
        resolve(graph, None, settings, with_rules=rules)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (Recipe(train=TrainRecipe(steps=-5)), r"train\.steps: -5 is below the least value, 1"),
        (Recipe(train=TrainRecipe(steps=2.5)), r"train\.steps: a whole number expected, not a number"),
        (Recipe(train=TrainRecipe(lr=float("nan"))), r"train\.lr: a finite number expected"),
        (Recipe(train=TrainRecipe(schedule="steps")), r"train\.schedule: 'steps' is not one of"),
        (Recipe(model=ModelRecipe(dropout=(-0.5,))), r"model\.dropout: -0\.5 is below the least value"),
        (Recipe(model=ModelRecipe(dim=10**30)), r"model\.dim: a whole number of at most"),
        (Recipe(train=None), "train: a section of keys expected"),
    ],
)
def test_a_recipe_from_python_is_checked_as_one_from_a_file(graph, recipe, message):
    with pytest.raises(RecipeError, match=message):
        resolve(graph, recipe)


def test_whole_numbers_in_a_recipe_from_python_become_numbers(graph):
    assert type(resolve(graph, Recipe(train=TrainRecipe(lr=1))).train.lr) is float
    assert resolve(graph, QUICK) == QUICK


@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 100_000, "9" * 400, "-" + "9" * 400, "{a = [1]}", "1979-05-27"])
@pytest.mark.parametrize("key", ["train.steps", "train.lr", "train.schedule", "model.dropout"])
def test_values_without_measure_are_one_line(key, value):
    with pytest.raises(RecipeError, match=re.escape(key)) as caught:
        override(Recipe(), [f"{key}={value}"])
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "text", ["train.steps = " + "9" * 5_000, "x = " + "[" * 100_000, "train." + "a." * 2_000 + "b=1"]
)
def test_recipes_without_measure_are_one_line(tmp_path, text):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(RecipeError, match=r"r\.toml: "):
        load_recipe(tmp_path / "r.toml")


def test_overrides_may_be_nested_by_section():
    wanted = override(Recipe(), ["model.dim=16", "model.reciprocal=true", "train.steps=7"])
    assert override(Recipe(), {"model": {"dim": 16, "reciprocal": True}, "train.steps": 7}) == wanted
    with pytest.raises(RecipeError, match=r"model\.dm: unknown key; did you mean 'dim'"):
        override(Recipe(), {"model": {"dm": 16}})


def test_overrides_are_texts_or_a_mapping():
    graph = load_graph("atlas")
    texts = ["train.lr=1e-5", "loss.name=margin", "model.reciprocal=true", "model.dropout=[]"]
    values = {"train.lr": 1e-5, "loss.name": "margin", "model.reciprocal": True, "model.dropout": ()}
    assert resolve(graph, None, values) == resolve(graph, None, texts)
    for wrong in ({"train.lr": object()}, {"train.lr": float("nan")}, {"lr": 1.0}, {"train.steps": 2.5}, "train.lr=1"):
        with pytest.raises(RecipeError):
            resolve(graph, None, wrong)


def test_epochs_decide_the_steps_unless_steps_are_set_later(graph):
    num, batch = len(graph.train), 64
    recipe = resolve(graph, None, {"train.epochs": 3, "train.batch": batch})
    assert recipe.train.steps == 3 * 2 * -(-num // batch)
    assert resolve(graph, recipe).train.steps == recipe.train.steps
    assert resolve(graph, recipe, {"train.steps": 7}).train.steps == 7
    train = graph.train.tolist()
    queries = {(h, r, "tail") for h, r, _ in train} | {(r, t, "head") for _, r, t in train}
    k_vs_all = {"loss.name": "k-vs-all", "loss.query_balance": 0, "sampling.negatives": 0, "train.batch": 1}
    assert resolve(graph, None, {**k_vs_all, "train.epochs": 2}).train.steps == 2 * len(queries)
