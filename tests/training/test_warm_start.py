"""Training starts from the vectors of another run: rows of the same names, and nothing that does not fit."""

import pytest
import torch

import pairre
from conftest import QUICK, planted_graph
from pairre.graph import Graph, Vocabulary
from pairre.rules import Rule
from pairre.support.errors import RecipeError, RunError

STILL = ["train.steps=1", "train.lr=0"]  # so that a run ends with the rows that it started from


@pytest.fixture(scope="module")
def source():
    return pairre.train(planted_graph(), QUICK, progress=False, device="cpu")


def renamed(graph, entities, relations=("next", "previous", "beside")):
    return Graph(
        "other",
        Vocabulary(entities, "entity"),
        Vocabulary(relations, "relation"),
        *map(graph.split, ("train", "valid", "test")),
    )


def test_everything_starts_from_a_run_on_the_same_graph(source, caplog):
    run = pairre.train(source.graph, overrides=STILL, init_from=source, progress=False, device="cpu")
    assert torch.equal(run.model.entity, source.model.entity)
    assert torch.equal(run.model.relation, source.model.relation)
    assert run.recipe.model.dim == source.recipe.model.dim
    assert "drawn" not in caplog.text
    further = pairre.train(source.graph, overrides=["train.steps=20"], init_from=source, progress=False, device="cpu")
    assert not torch.equal(further.model.entity, source.model.entity)


@pytest.mark.parametrize("reciprocal", ["false", "true"])
def test_rows_follow_their_names_to_another_graph(graph, reciprocal, caplog):
    source = pairre.train(graph, QUICK, overrides=[f"model.reciprocal={reciprocal}"], progress=False, device="cpu")
    entities = [f"e{39 - i}" if i % 2 else f"new {i}" for i in range(40)]
    other = renamed(graph, entities, ["beside", "next", "unheard of"])
    run = pairre.train(other, overrides=STILL, init_from=source, progress=False, device="cpu")
    drawn = pairre.train(other, run.recipe, progress=False, device="cpu")
    for i, name in enumerate(entities):
        expected = source.model.entity[graph.entities.id(name)] if i % 2 else drawn.model.entity[i]
        assert torch.equal(run.model.entity[i], expected)
    for copy in range(1 + (reciprocal == "true")):
        mine, theirs, fresh = (
            model.relation[3 * copy : 3 * copy + 3] for model in (run.model, source.model, drawn.model)
        )
        assert torch.equal(mine, torch.stack([theirs[2], theirs[0], fresh[2]]))
    assert "20 of 40 entities and 2 of 3 relations" in caplog.text


@pytest.mark.parametrize("model", ["rotate", "rgcn", "complex-nne"])
def test_scores_are_those_of_the_run_to_start_from(graph, model):
    source = pairre.train(graph, QUICK, overrides=[f"model.name={model}"], progress=False, device="cpu")
    other = [*STILL, "loss.margin=3"]  # which changes how new rows are drawn, and the unit of RotatE's phases
    run = pairre.train(graph, overrides=other, init_from=source, progress=False, device="cpu")
    triples = graph.train.long()
    assert torch.equal(run.model.score(triples), source.model.score(triples))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.dim=8"], "model.dim: 8, but the run to start from has 16.*set model.dim=16"),
        (["model.name=transe"], "model.name: transe"),
        (["model.reciprocal=true"], "set model.reciprocal=false"),
    ],
)
def test_another_model_is_refused(source, settings, message):
    with pytest.raises(RecipeError, match=message):
        pairre.train(source.graph, overrides=settings, init_from=source, progress=False)


def test_a_graph_without_a_common_name_and_tied_rules_are_refused(source):
    other = renamed(source.graph, [f"x{i}" for i in range(40)])
    with pytest.raises(RunError, match="no entity of other has a name of this run"):
        pairre.train(other, init_from=source, progress=False)
    rules = [Rule(("next",), "beside", "subrelation", 1.0)]
    with pytest.raises(RecipeError, match=r"rules\.mode"):
        pairre.train(source.graph, rules=rules, overrides=["rules.mode=tie"], init_from=source, progress=False)


def test_where_a_run_started_is_stored_and_kept(source, tmp_path):
    source.save(tmp_path / "one")
    options = {"out": tmp_path / "two", "progress": False, "device": "cpu"}
    run = pairre.train(source.graph, init_from=tmp_path / "one", **options)
    stored = pairre.load_run(tmp_path / "two", "cpu").origin
    assert stored == run.origin
    assert (stored["run"], stored["fingerprint"]) == ("one", source.graph.fingerprint)
    pairre.train(source.graph, init_from=tmp_path / "one", resume=True, **options)
    source.save(tmp_path / "three")
    with pytest.raises(RunError, match="did not start from three"):
        pairre.train(source.graph, init_from=tmp_path / "three", resume=True, **options)
