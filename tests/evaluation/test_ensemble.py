"""Ensembles of runs: made on validation, a run like any other, and clear words for what cannot be one."""

from __future__ import annotations

import dataclasses
import pickle
import sys

import pytest
import torch

import pairre
from pairre.evaluation.ensemble import fit_ensemble
from pairre.graph import Graph
from pairre.models import Ensemble, PairRE, RuleScores
from pairre.rules import Rule
from pairre.runs import Run
from pairre.support.errors import GraphError, RuleError, RunError
from tests.conftest import planted_graph

RULES = [Rule(("next",), "previous", "inverse", 1.0), Rule(("beside",), "beside", "symmetry", 0.8)]
QUICK = ("train.steps=60", "train.batch=32", "sampling.negatives=8", "model.dim=6", "train.lr=0.02")


def trained(graph, *settings, **options):
    return pairre.train(graph, overrides=[*QUICK, *settings], progress=False, device="cpu", **options)


@pytest.fixture(scope="module")
def members():
    graph = planted_graph()
    return [
        trained(graph, "model.name=pairre", "train.seed=1"),
        trained(graph, "model.name=complex", "model.init_range=0.3", "loss.margin=0", "model.reciprocal=true"),
        trained(graph, "model.name=transr", "train.seed=2"),
    ]


@pytest.fixture(scope="module")
def made(members):
    return pairre.ensemble(members, rules=RULES)


def without(graph, split):
    splits = {name: graph.split(name) for name in ("train", "valid", "test")}
    splits[split] = splits[split][:0]
    return Graph(graph.name, graph.entities, graph.relations, *splits.values())


def test_the_result_is_a_run_of_its_members(made, members):
    assert isinstance(made.model, Ensemble)
    assert [m.name for m in made.model.members] == ["pairre", "complex", "transr", "rules"]
    assert made.origin["command"] == "ensemble"
    assert [m["model"] for m in made.origin["members"]] == ["pairre", "complex", "transr", "rules"]
    assert made.origin["left_out_mrr"].keys() >= {"equal", "one for all"}
    best = max(pairre.evaluate(run, "valid")["both"]["mrr"] for run in members)
    assert pairre.evaluate(made, "valid")["both"]["mrr"] > best
    assert pairre.evaluate(made, "valid")["both"]["mrr"] == pytest.approx(made.origin["valid_mrr"], abs=1e-6)


def test_it_is_a_run_like_any_other(made, tmp_path):
    answers = pairre.predict(made, head="e3", relation="next", k=3)
    many = pairre.predict_many(made, [("e3", "next", None), (None, "beside", "e5"), ("e1", None, "e2")], k=3)
    assert many[0] == answers
    scored = pairre.score(made, [(a.head, a.relation, a.tail) for a in answers], side="tail")
    assert [s.score for s in scored] == pytest.approx([a.score for a in answers], rel=1e-4, abs=1e-5)
    links = pairre.discover(made, k=5)
    assert len(links) == 5
    assert all(0 <= link.probability <= 1 for link in links)
    assert pairre.calibrate(made).slope > 0
    found = pairre.explain(made, "e3", "previous", "e2", rules=RULES)
    assert found.rules
    assert found.refits["head"].num_facts > 0
    assert len(pairre.similar(made, "e3", k=4)) == 4
    assert len(pairre.clusters(made, 3)) == 3
    assert [file.name for file in pairre.export(made, tmp_path / "v.parquet")] == ["v.parquet"]
    assert made.entity_vectors().array.shape == (40, 6 + 12 + 6)
    assert made.relation_vectors().array.shape == (3, 12 + 24 + 42)
    again = pickle.loads(pickle.dumps(made))
    assert pairre.predict(again, head="e3", relation="next", k=3) == answers


@pytest.mark.parametrize("reciprocal", ["false", "true"])
def test_runs_of_pairre_become_one_with_the_scores_of_the_ensemble(reciprocal):
    graph, always = planted_graph(), f"model.reciprocal={reciprocal}"
    runs = [trained(graph, always, f"train.seed={seed}", f"model.dim={dim}") for seed, dim in enumerate((6, 9, 5))]
    folded = pairre.ensemble(runs)
    assert type(folded.model) is PairRE
    assert folded.model.dim == folded.recipe.model.dim == 20
    weights = torch.tensor([[0.7, 1.3, 0.2], [2.0, 0.1, 0.5], [0.0, 1.0, 1.0]])
    one, other = pairre.runs.fold(runs, weights.double()).model, Ensemble([run.model for run in runs], weights)
    for side in ("head", "tail"):
        expected = other.score_all(graph.test.long(), side)
        torch.testing.assert_close(one.score_all(graph.test.long(), side), expected, rtol=1e-5, atol=1e-5)


def test_rules_keep_runs_of_pairre_apart(members):
    assert isinstance(pairre.ensemble(members[:1], rules=RULES).model.members[1], RuleScores)


def test_rules_that_name_entities_need_no_list(members, made):
    one = pairre.ensemble(members[:1], entity_rules=True)
    assert [m["run"] for m in one.origin["members"]] == ["pairre", "entity rules"]
    every = pairre.ensemble([made], entity_rules=True)
    assert [m.name for m in every.model.members] == ["pairre", "complex", "transr", "rules", "entity-rules"]
    assert [m.name for m in pairre.ensemble([every, one]).model.members[-2:]] == ["rules", "entity-rules"]
    fitted = fit_ensemble(members[:1], entity_rules=True)
    assert [m.name for m in fitted.run_of(members[:1], None).model.members] == ["pairre", "entity-rules"]
    assert fitted.left_out_mrr > 0


def test_ensembles_are_taken_apart(made, members):
    inner = pairre.ensemble(members[:2])
    outer = pairre.ensemble([inner, members[2]])
    assert [m.name for m in outer.model.members] == ["pairre", "complex", "transr"]
    assert [m.rules for m in [pairre.ensemble([made, members[0]]).model.rules]] == [RULES]
    with pytest.raises(RunError, match="its members have different rules"):
        pairre.ensemble([made, pairre.ensemble(members[:2], rules=RULES[:1])])
    with pytest.raises(RunError, match="its members have different rules"):
        pairre.ensemble([made, pairre.ensemble(members[:2], rules=RULES, combine="noisy-or")])


def test_progress_is_a_share_of_the_work(members):
    shares = []
    pairre.ensemble(members[:2], entity_rules=True, progress=shares.append)
    assert len(shares) >= 6
    assert sum(shares) == pytest.approx(1)


def test_of_many_triples_some_are_taken(members, monkeypatch):
    monkeypatch.setattr(sys.modules["pairre.evaluation.ensemble"], "MAX_TRIPLES", 5)
    assert pairre.ensemble(members[:2]).origin["num_triples"] == 5


def test_fixed_candidates_are_those_that_count(members):
    graph = planted_graph()
    ids = torch.arange(4, 12, dtype=torch.int32).expand(len(graph.valid), -1).contiguous()
    graph = dataclasses.replace(graph, candidates={"valid.head": ids, "valid.tail": ids})
    runs = [Run(graph, run.recipe, run.model) for run in members[:2]]
    both = pairre.ensemble(runs)
    measured = pairre.evaluate(both, "valid")
    assert measured["protocol"] == "8 fixed candidates"
    assert both.origin["valid_mrr"] == pytest.approx(measured["both"]["mrr"], abs=1e-6)


def test_what_cannot_be_an_ensemble_is_refused(members, tmp_path):
    one = members[0]
    with pytest.raises(RunError, match="at least two runs, or one and rules"):
        pairre.ensemble([one])
    with pytest.raises(RunError, match="at least two runs"):
        pairre.ensemble([])
    with pytest.raises(RunError, match="from another graph than"):
        pairre.ensemble([one, trained(planted_graph(seed=1))])
    with pytest.raises(RunError, match="no such run folder"):
        pairre.ensemble([one, tmp_path / "none"])
    blind = [Run(without(one.graph, "valid"), run.recipe, run.model) for run in members[:2]]
    with pytest.raises(GraphError, match="no validation split"):
        pairre.ensemble(blind)
    with pytest.raises(RuleError, match="combine 'min'"):
        pairre.ensemble([one], rules=RULES, combine="min")
    with pytest.raises(RunError, match="combine='noisy-or' is about given rules"):
        pairre.ensemble([one], combine="noisy-or", entity_rules=True)
    with pytest.raises(RuleError):
        pairre.ensemble([one], rules=tmp_path / "none.tsv")
    lost = pickle.loads(pickle.dumps(one))
    lost.model.entity[3] = torch.nan
    with pytest.raises(RunError, match="not finite numbers"):
        pairre.ensemble([members[1], lost])


def test_an_ensemble_is_not_trained_on(made, tmp_path):
    with pytest.raises(pairre.PairREError, match="an ensemble is made of runs"):
        pairre.train(made.graph, init_from=made, progress=False)
    with pytest.raises(pairre.PairREError, match="an ensemble is made of runs"):
        pairre.extend(made, [("e1", "next", "new")])
    with pytest.raises(RunError, match="runs of pairre can be merged"):
        pairre.merge([made, made])
