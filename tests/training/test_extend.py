"""A run grows: new entities get vectors from their facts, and nothing old moves unless asked."""

import numpy as np
import pytest
import torch

import pairre
from conftest import planted_graph
from pairre.evaluation import rank_both_sides
from pairre.graph import Graph, Vocabulary
from pairre.models import Model, models
from pairre.models.contract import REGISTRY
from pairre.settings import override
from pairre.support.errors import RecipeError, RunError

NEW = [("x", "next", "e3"), ("e2", "next", "x"), ("e1", "beside", "x"), ("y", "next", "x")]


@pytest.fixture(scope="module")
def without():
    """The ring without its last entity, and the facts of that entity by name."""
    whole = planted_graph()
    last = whole.num_entities - 1
    splits = [whole.split(split) for split in ("train", "valid", "test")]
    about = [(triples[:, [0, 2]] == last).any(1) for triples in splits]
    kept = [triples[~own] for triples, own in zip(splits, about, strict=True)]
    entities = Vocabulary(whole.entities.name_list(range(last)), "entity")
    facts = torch.cat([triples[own] for triples, own in zip(splits, about, strict=True)])
    return Graph("cut ring", entities, whole.relations, *kept), list(whole.names(facts))


@pytest.fixture(scope="module")
def run(without):
    from conftest import QUICK

    return pairre.train(without[0], override(QUICK, ["train.steps=600", "train.validate_every=200"]), progress=False)


def test_a_new_entity_gets_a_vector_from_its_facts(run, without):
    """Three of the eight facts rank the others far better than chance, in closed form and after steps."""
    _, facts = without
    for epochs in (0, 10):
        extended = pairre.extend(run, facts[:3], epochs=epochs)
        ids = [
            [extended.graph.entities.id(h), extended.graph.relations.id(r), extended.graph.entities.id(t)]
            for h, r, t in facts[3:]
        ]
        ranks = rank_both_sides(extended.model, torch.tensor(ids), extended.graph.known)
        mrr = torch.cat([1 / ranks[side].realistic for side in ("head", "tail")]).mean()
        assert mrr > 0.3  # of 40 entities; by chance it would be 0.11


def test_old_answers_keep_their_bits(run):
    extended = pairre.extend(run, NEW)
    old = run.graph.num_entities
    triples = run.graph.train.long().to(run.model.entity.device)
    assert torch.equal(extended.model.score(triples), run.model.score(triples))
    for side in ("head", "tail"):
        assert torch.equal(extended.model.score_all(triples, side)[:, :old], run.model.score_all(triples, side))
    assert extended.graph.num_entities == old + 2
    assert extended.recipe == run.recipe
    again = pairre.extend(run, NEW)
    assert torch.equal(again.model.entity, extended.model.entity)


@pytest.mark.parametrize("model", [m.name for m in models()])
def test_every_model_can_be_extended(graph, quick, model):
    run = pairre.train(graph, override(quick, [f"model.name={model}", "train.steps=4"]), progress=False)
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    extended = pairre.extend(run, NEW, epochs=2, rate=0.1)
    started = pairre.extend(run, NEW, epochs=0)
    rows = extended.model.state_dict()
    for name, value in before.items():
        assert torch.equal(rows[name][: len(value)], value), name
        assert torch.equal(run.model.state_dict()[name], value), name
    new = rows["entity"][graph.num_entities :]
    assert new.isfinite().all()
    assert (new != started.model.entity[graph.num_entities :]).any(1).all()
    if not run.model.needs_other_rows:
        triples = graph.train.long().to(run.model.entity.device)
        assert torch.equal(extended.model.score(triples), run.model.score(triples))


@pytest.fixture
def one_sided(monkeypatch):
    """A model that scales candidates on one side only, by its name."""

    class ScaledTransE(Model):
        formula = "−‖h ∘ r.scale + r.shift − t‖₁"
        paper = "none"
        metric = "l1"
        relation_parts = {"scale": 1, "shift": 1}

        def tail_query(self, h, r):
            return h * r.scale + r.shift, None

        def head_query(self, r, t):
            return t - r.shift, r.scale

    ScaledTransE.name = "scaled-transe"
    monkeypatch.setitem(REGISTRY, ScaledTransE.name, ScaledTransE)


@pytest.mark.usefixtures("one_sided")
@pytest.mark.parametrize("name", ["transe", "scaled-transe"])
def test_the_start_is_the_best_candidate_feature_by_feature(graph, quick, name):
    """Both are a sum over features of distances, so that no other value of any feature has a better sum of scores."""
    run = pairre.train(graph, override(quick, [f"model.name={name}", "train.steps=40"]), progress=False, device="cpu")
    facts = [
        ("x", "next", "e3"),
        ("e2", "next", "x"),
        ("e1", "beside", "x"),
        ("x", "previous", "e9"),
        ("e5", "beside", "x"),
    ]
    model = pairre.extend(run, facts, epochs=0).model
    triples = torch.tensor(
        [[40 if name == "x" else int(name[1:]) for name in (h, t)] + [run.graph.relations.id(r)] for h, r, t in facts]
    )[:, [0, 2, 1]]
    best = model.score(triples).sum()
    own = model.entity[-1].clone()
    for feature in range(len(own)):
        for step in (-0.1, -0.01, 0.01, 0.1):
            model.entity[-1, feature] = own[feature] + step
            assert model.score(triples).sum() <= best + 1e-5
        model.entity[-1, feature] = own[feature]


def test_the_start_of_pairre_is_the_weighted_median_on_the_sphere(run):
    facts = [("x", "next", "e3"), ("e2", "next", "x"), ("e1", "beside", "x"), ("e7", "previous", "x")]
    model = pairre.extend(run, facts, epochs=0).model
    model = model.cpu()
    unit = torch.nn.functional.normalize(model.entity[:-1]).numpy()
    scales = model.relation.numpy()
    asked, weights = [], []
    for head, relation, tail in facts:
        a, b = np.split(scales[run.graph.relations.id(relation)], 2)
        own, other, known = (a, b, tail) if head == "x" else (b, a, head)
        asked.append(unit[int(known[1:])] * other / own)
        weights.append(abs(own))
    found = []
    for values, weight in zip(np.array(asked).T, np.array(weights).T, strict=True):
        costs = [(weight * abs(values - value)).sum() for value in values]
        found.append(values[int(np.argmin(costs))])
    expected = np.array(found) / np.linalg.norm(found)
    np.testing.assert_allclose(torch.nn.functional.normalize(model.entity[-1:])[0].numpy(), expected, atol=1e-5)


def test_named_entities_move_where_that_is_asked(run, caplog):
    facts = [("e1", "next", "e9")]
    assert torch.equal(pairre.extend(run, facts).model.entity, run.model.entity)
    assert "no new entity" in caplog.text
    moved = pairre.extend(run, facts, move="named").model.entity
    assert ((moved != run.model.entity).any(1)).nonzero()[:, 0].tolist() == [1, 9]


def test_an_entity_without_a_way_to_old_ones_is_counted(run, caplog):
    pairre.extend(run, [("x", "next", "y"), ("z", "next", "e3")])
    assert "2 new entities are linked to no old one" in caplog.text


def test_an_extended_run_is_stored_like_any_other(run, tmp_path):
    run.save(tmp_path / "one")
    extended = pairre.extend(tmp_path / "one", NEW, device="cpu")
    extended.save(tmp_path / "two")
    loaded = pairre.load_run(tmp_path / "two", "cpu")
    assert torch.equal(loaded.model.entity, extended.model.entity)
    assert loaded.origin["run"] == "one"
    assert loaded.origin["fingerprint"] == run.graph.fingerprint
    assert (loaded.origin["new_entities"], loaded.origin["new_triples"]) == (2, 4)
    again = pairre.extend(loaded, [("z", "next", "x")])
    assert again.origin["before"] == loaded.origin
    with pytest.raises(RunError, match="no checkpoint"):
        pairre.train(loaded.graph, out=tmp_path / "two", resume=True, progress=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"move": "all"}, "move 'all'"), ({"epochs": -1}, "epochs"), ({"rate": float("nan")}, "rate")],
)
def test_wrong_settings_are_refused(run, options, message):
    with pytest.raises(RecipeError, match=message):
        pairre.extend(run, NEW, **options)


def test_k_vs_all_learns_from_the_new_queries_alone(graph, quick):
    settings = ["loss.name=k-vs-all", "sampling.negatives=0", "loss.query_balance=0", "loss.subsampling=false"]
    run = pairre.train(graph, override(quick, [*settings, "train.steps=20"]), progress=False)
    extended = pairre.extend(run, NEW)
    assert torch.equal(extended.model.entity[: graph.num_entities], run.model.entity)
