"""An ensemble scores as the weighted sum of its members does, whichever models they are and however it is asked."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
import torch

from pairre.evaluation.ranking import rank
from pairre.graph.index import COLUMN
from pairre.models import Ensemble, RuleScores, model_class, models
from pairre.rules import Rule
from pairre.support.errors import PairREError
from tests.conftest import cuda_kernels_on_the_cpu, planted_graph

RULES = [
    Rule(("next",), "previous", "inverse", 1.0),
    Rule(("beside",), "beside", "symmetry", 0.8),
    Rule(("next", "next"), "beside", "composition", 0.2),
]
SIDES = pytest.mark.parametrize("side", ["head", "tail"])
# Every kind of member: a scale, a product, a projection, a formula of its own, neighbours, a network.
KINDS = ("pairre", "complex", "transr", "kg2e", "gc-ote", "conve")


@pytest.fixture(params=[37, 40])
def graph(request):
    return planted_graph(request.param)


def member(graph, name, dim=8, seed=0, **options):
    made = model_class(name)(graph.num_entities, graph.num_relations, dim, **options)
    made.attach(graph, 0.5, seed)
    made.initialise(0.5, seed)
    made.init_from_graph(graph, seed)
    return made.requires_grad_(False)


def weights(graph, num, seed=0):
    return torch.rand(graph.num_relations, num, generator=torch.Generator().manual_seed(seed)) + 0.1


def summed(members, given, triples, side):
    """The scores of all entities as a sum in float64."""
    return sum(
        given[triples[:, 1], m, None].double() * one.score_all(triples, side).double() for m, one in enumerate(members)
    )


@SIDES
@pytest.mark.parametrize("names", [*itertools.combinations(KINDS, 2), KINDS], ids="+".join)
def test_scores_are_weighted_sums_however_they_are_asked_for(names, side):
    graph = planted_graph(37)
    members = [member(graph, name, reciprocal=bool(i % 2)) for i, name in enumerate(names)]
    given, triples = weights(graph, len(members)), graph.valid.long()
    made = Ensemble(members, given)
    expected = summed(members, given, triples, side)
    scores = made.score_all(triples, side)
    torch.testing.assert_close(scores.double(), expected, rtol=1e-5, atol=1e-5)
    true = triples[:, COLUMN[side], None]
    torch.testing.assert_close(made.score(triples, side), scores.gather(1, true)[:, 0], rtol=1e-5, atol=1e-5)
    some = torch.randint(37, (len(triples), 5), generator=torch.Generator().manual_seed(1))
    for ids in (some, some[0]):
        own = scores.gather(1, ids.expand(len(triples), -1))
        torch.testing.assert_close(made.score_candidates(triples, side, ids), own, rtol=1e-5, atol=1e-5)
    relations = made.score_relations(triples[:, 0], triples[:, 2])
    for r in range(graph.num_relations):
        triples[:, 1] = r
        torch.testing.assert_close(relations[:, r], made.score(triples, "tail"), rtol=1e-5, atol=1e-5)


@SIDES
@pytest.mark.parametrize("names", list(itertools.combinations(KINDS[:5], 2)), ids="+".join)
def test_ranks_are_those_of_sums_in_float64(names, side, graph, monkeypatch):
    """Chunks of candidates and of queries are small, so that there are several with odd sizes."""
    monkeypatch.setattr("pairre.evaluation.ranking._MAX_QUERY_FEATURES", {"cpu": 100})
    monkeypatch.setattr("pairre.models.scoring.Model.candidate_chunks", in_small_chunks)
    monkeypatch.setattr("pairre.models.scoring.MAX_ELEMENTS", 100)
    members = [member(graph, name, reciprocal=not i) for i, name in enumerate(names)]
    members.append(RuleScores(graph, RULES))
    given, triples = weights(graph, 3), graph.valid.long()
    ranks = rank(Ensemble(members, given), triples, graph.known, side)
    expected = summed(members, given, triples, side)
    known = {tuple(t) for split in ("train", "valid", "test") for t in graph.split(split).tolist()}
    for n, triple in enumerate(triples.tolist()):
        other = [
            e
            for e in range(graph.num_entities)
            if (*triple[: COLUMN[side]], e, *triple[COLUMN[side] + 1 :]) not in known
        ]
        gap = expected[n, other] - expected[n, triple[COLUMN[side]]]
        assert (gap.abs() > 1e-5).all(), "the example has no ties, so that float32 and float64 agree"
        assert ranks.higher[n] == (gap > 0).sum()
        assert ranks.num_candidates[n] == len(other) + 1


def in_small_chunks(model, side, relation, ids=None, rows=None):
    every = torch.arange(model.num_entities) if ids is None else ids
    for start in range(0, len(every), 7):
        rows = model.entity_rows(every[start : start + 7])
        yield start, model.prepare_entities(rows, model.candidate_side[side], relation)


@SIDES
@pytest.mark.parametrize(
    "names", list(itertools.combinations(("pairre", "complex", "rotate", "transr"), 2)), ids="+".join
)
def test_entities_with_equal_rows_tie(names, side, graph):
    members = [member(graph, name, dim=11 + i) for i, name in enumerate(names)]
    for one in members:
        one.entity[1::2] = one.entity[: graph.num_entities - 1 : 2]  # every second entity is its neighbour's twin
    triples = torch.tensor([[0, 0, 9], [4, 1, 30], [12, 2, 3], [7, 0, 22]])
    none = planted_graph(graph.num_entities)
    ranks = rank(Ensemble(members, weights(graph, 2)), triples, type(none.known)(triples, graph.num_entities, 3), side)
    assert (ranks.equal >= 1).all()


def test_members_of_half_precision_are_scored_in_full(graph):
    members = [member(graph, "pairre", storage="float16"), member(graph, "distmult", storage="bfloat16")]
    given, triples = weights(graph, 2), graph.test.long()
    made = Ensemble(members, given)
    assert made.entity_rows(triples[:, 0]).dtype == torch.float32
    torch.testing.assert_close(
        made.score_all(triples, "tail").double(), summed(members, given, triples, "tail"), rtol=1e-5, atol=1e-5
    )


def test_every_model_can_be_a_member():
    graph = planted_graph(37)
    members = [member(graph, cls.name, reciprocal=bool(i % 2)) for i, cls in enumerate(models())]
    members.append(RuleScores(graph, RULES))
    given, triples = weights(graph, len(members)), graph.test.long()
    made = Ensemble(members, given)
    for side in ("head", "tail"):
        expected = summed(members, given, triples, side)
        torch.testing.assert_close(made.score_all(triples, side).double(), expected, rtol=1e-5, atol=1e-4)


def test_kernels_of_a_gpu_give_the_same_ranks():
    graph = planted_graph(37)
    made = Ensemble([member(graph, "pairre"), member(graph, "complex"), RuleScores(graph, RULES)], weights(graph, 3))
    on_cpu = rank(made, graph.valid[:6], graph.known, "tail")
    with cuda_kernels_on_the_cpu():
        pytest.importorskip("triton", reason="triton is not installed")
        there = rank(made, graph.valid[:6], graph.known, "tail")
    assert torch.equal(on_cpu.higher, there.higher)


def test_copies_and_pickles_score_the_same(graph):
    made = Ensemble([member(graph, "kg2e"), member(graph, "gc-ote"), RuleScores(graph, RULES)], weights(graph, 3))
    expected = made.score_all(graph.test.long(), "tail")
    for again in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), copy.deepcopy(made).to("cpu")):
        assert torch.equal(again.score_all(graph.test.long(), "tail"), expected)


def test_double_precision(graph):
    members = [member(graph, "pairre").double(), member(graph, "complex").double()]
    made = Ensemble(members, weights(graph, 2)).double()
    assert made.dtype == torch.float64
    assert made.score_all(graph.test.long(), "head").dtype == torch.float64


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -0.1])
def test_weights_are_finite_and_not_negative(graph, wrong):
    given = weights(graph, 2)
    given[1, 0] = wrong
    with pytest.raises(PairREError, match="finite numbers of at least 0"):
        Ensemble([member(graph, "pairre"), member(graph, "complex")], given)


def test_shapes_and_places_of_members_are_checked(graph):
    one, rules = member(graph, "pairre"), RuleScores(graph, RULES)
    with pytest.raises(PairREError, match="weights of shape"):
        Ensemble([one, one], weights(graph, 3))
    with pytest.raises(PairREError, match="rules are the last members"):
        Ensemble([rules, one], weights(graph, 2))


def test_an_ensemble_is_no_model_that_a_recipe_names():
    assert "ensemble" not in {cls.name for cls in models()}
    assert "rules" not in {cls.name for cls in models()}
    with pytest.raises(PairREError, match="an ensemble is made of runs, not trained"):
        model_class("ensemble")


def test_vectors_are_the_members_side_by_side(graph):
    members = [member(graph, "pairre", dim=5), member(graph, "complex", dim=3), RuleScores(graph, RULES)]
    made = Ensemble(members, weights(graph, 3))
    rows = made.as_vectors(made.entity_rows(torch.arange(made.num_entities)))
    assert rows.shape == (graph.num_entities, 11)
    cosine = torch.nn.functional.cosine_similarity
    mean = sum(cosine(*m.as_vectors(m.entity_rows(torch.tensor([0, 1])))[:, None]) for m in members[:2]) / 2
    torch.testing.assert_close(cosine(rows[:1], rows[1:2]), mean)
    assert made.relation_vectors(torch.arange(3)).shape == (3, 10 + 6)
