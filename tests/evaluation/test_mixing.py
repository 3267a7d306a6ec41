"""Weights that validation chooses: the likeliest ones, held to those of all relations where there are few queries."""

import pytest
import torch

from pairre.evaluation import candidates as candidates_module
from pairre.evaluation.candidates import CandidateScores, candidate_scores
from pairre.evaluation.metrics import summarise
from pairre.evaluation.mixing import PLANS, Plan, _Fitter, fit, temperatures
from pairre.evaluation.ranking import rank_both_sides
from pairre.models import Ensemble, RuleScores, model_class
from pairre.rules import Rule

TRUE_WEIGHTS = torch.tensor([[2.0, 0.5], [0.3, 1.5], [1.0, 1.0]])  # of three relations


def drawn(num=600, num_candidates=12, given=TRUE_WEIGHTS, seed=0):
    """Queries whose true entity is drawn from the softmax of known weights; it comes first, as it has to."""
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(num, num_candidates, 2, generator=random) * torch.tensor([1.0, 3.0])
    relation = torch.randint(len(given), (num,), generator=random)
    share = torch.einsum("qcm,qm->qc", scores, given[relation]).softmax(1)
    true = torch.multinomial(share, 1, generator=random)
    order = torch.cat([true, torch.zeros_like(true)], 1)
    rows = torch.arange(num)
    scores[rows, 0], scores[rows, order[:, 0]] = scores[rows, order[:, 0]].clone(), scores[rows, 0].clone()
    return CandidateScores(scores, torch.ones(num, num_candidates), relation, rows // 2)


def likelihood(found, given):
    logits = torch.einsum("qcm,qm->qc", found.scores, given[found.relation].float()) + found.size.log()
    return logits.log_softmax(1)[:, 0].double().sum()


def test_weights_of_all_relations_are_the_likeliest():
    found = drawn(given=TRUE_WEIGHTS[:1])
    weights = _Fitter(found, 1).weights_of(Plan())
    torch.testing.assert_close(weights[0].float(), TRUE_WEIGHTS[0], rtol=0.25, atol=0.1)
    best = likelihood(found, weights)
    for step in ([0.02, 0], [-0.02, 0], [0, 0.02], [0, -0.02]):
        assert likelihood(found, weights + torch.tensor(step)) < best


def test_a_weight_that_would_be_negative_is_zero():
    found = drawn(given=torch.tensor([[1.0, -1.0]]))
    weights = _Fitter(found, 1).weights_of(Plan())[0]
    assert weights[1] == 0
    for other in (0.02, -0.02):
        assert likelihood(found, (weights + torch.tensor([other, 0.0]))[None]) < likelihood(found, weights[None])


def test_relations_with_queries_leave_the_weights_of_all_and_others_keep_them():
    found = drawn(3000)
    fitter = _Fitter(found, 4)  # a relation has no queries
    loose, strict = fitter.weights_of(Plan(1.0)), fitter.weights_of(Plan(1e6))
    torch.testing.assert_close(loose[:3].float(), TRUE_WEIGHTS, rtol=0.3, atol=0.2)
    torch.testing.assert_close(loose[3], fitter.overall)
    torch.testing.assert_close(strict, fitter.overall.expand(4, -1), rtol=0.02, atol=0.02)


def test_the_plan_is_that_of_the_best_mrr_on_triples_left_out():
    by_relation = fit(drawn(3000), 3)
    assert by_relation.plan.hold is not None
    assert by_relation.left_out_mrr[str(by_relation.plan)] == max(by_relation.left_out_mrr.values())
    assert set(by_relation.left_out_mrr) == {str(plan) for plan in PLANS}
    alike = fit(drawn(200, given=torch.tensor([[1.0, 0.01]] * 3)), 3)
    assert alike.weights.shape == (3, 2)


def test_a_single_triple_is_enough():
    fitted = fit(drawn(2), 3)
    assert fitted.weights.isfinite().all()
    assert fitted.plan == PLANS[0]  # nothing was left out, so that the simplest is as good as any


def test_members_that_are_equal_or_constant_are_no_trouble():
    found = drawn(300)
    for second in (found.scores[:, :, 0], torch.zeros_like(found.scores[:, :, 0])):
        scores = torch.stack([found.scores[:, :, 0], second], 2)
        fitted = fit(CandidateScores(scores, found.size, found.relation, found.triple), 3)
        assert fitted.weights.isfinite().all()
        assert (fitted.weights >= 0).all()


def test_a_temperature_undoes_a_scale():
    found = drawn(given=torch.tensor([[1.0, 1.0]]))
    scaled = CandidateScores(found.scores * 5, found.size, found.relation, found.triple)
    torch.testing.assert_close(temperatures(scaled), 5 * temperatures(found), rtol=1e-2, atol=1e-3)


@pytest.fixture
def models(graph):
    made = []
    for seed, name in enumerate(("pairre", "complex")):
        model = model_class(name)(graph.num_entities, graph.num_relations, 6)
        model.initialise(0.5, seed)
        made.append(model.requires_grad_(False))
    return [*made, RuleScores(graph, [Rule(("next",), "previous", "inverse", 1.0)])]


def test_ranks_of_candidates_are_those_of_all_entities_where_all_are_candidates(graph, models):
    found = candidate_scores(models, graph, graph.valid)
    weights = torch.rand(graph.num_relations, 3) + 0.1
    exact = rank_both_sides(Ensemble(models, weights), graph.valid, graph.known)
    expected = torch.cat([1 / exact[side].realistic for side in ("head", "tail")])
    torch.testing.assert_close(found.reciprocal_ranks(weights[found.relation]), expected)
    assert summarise(exact)["both"]["mrr"] == pytest.approx(float(expected.mean()))


def test_random_candidates_stand_for_the_rest(graph, models, monkeypatch):
    monkeypatch.setattr(candidates_module, "_NUM_BEST", 3)
    monkeypatch.setattr(candidates_module, "_NUM_RANDOM", 9)
    found = candidate_scores(models, graph, graph.valid)
    assert (found.size[:, 0] == 1).all()
    num_known = torch.cat(
        [graph.known.side(side).count(graph.valid.long()) for side in ("head", "tail")]
    )  # the true one among them
    torch.testing.assert_close(found.size.sum(1), (graph.num_entities - num_known + 1).float())
    assert found.size.shape[1] <= 1 + 3 * 3 + 9
