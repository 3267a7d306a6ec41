"""A prepared run: the very bits of `answer`, one query at a time or many together, for every model that it takes."""

import pickle
from dataclasses import replace

import pytest
import torch

from pairre.evaluation import calibrate, calibration_of
from pairre.inference.answers import Choice, answer
from pairre.inference.predict import predict, predict_many
from pairre.inference.prepared import Curve, PreparedRun
from pairre.kernels import backend
from pairre.kernels.cpu.best import NONE_KNOWN, best_of_query
from pairre.models import model_class
from pairre.models.contract import REGISTRY
from pairre.runs import Calibration, Run, load_run
from pairre.support.errors import PairREError

CHOICES = {
    "plausible": Choice(k=3),
    "any": Choice(k=7, any=True),
    "known": Choice(k=50, known=True),
    "some": Choice(k=5, entities=torch.arange(0, 40, 3)),
    "some of any": Choice(k=5, any=True, entities=torch.arange(1, 40, 2)),
}


def run_of(graph, recipe, name="pairre"):
    kind = model_class(name)
    model = kind(graph.num_entities, graph.num_relations, recipe.model.dim)
    model.attach(graph, 0.5, 0)
    model.initialise(0.5, 0)
    model.init_from_graph(graph, 0)
    return Run(graph, recipe, model.requires_grad_(False))


def queries(graph):
    """Return queries for tails and for heads, mixed, from all splits."""
    triples = torch.cat([graph.test, graph.valid, graph.train[:20]]).tolist()
    return [(h, r, -1) if i % 2 else (-1, r, t) for i, (h, r, t) in enumerate(triples)]


def prepared(run):
    return PreparedRun(run, PreparedRun.prepare(run))


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("name", ["pairre", "transe", "rotate", "distmult", "hole", "conve"])
def test_answers_are_those_of_answer(graph, quick, name, choice):
    run = run_of(graph, quick, name)
    assert PreparedRun.can_prepare(run)
    asked = queries(graph)
    found = prepared(run).answer(asked, choice)
    for query, one in zip(asked, found, strict=True):
        expected = answer(run, torch.tensor([query]), choice)
        assert one.ids == expected.triples[:, query.index(-1)].tolist()
        assert one.scores == expected.scores.tolist()
        assert one.probabilities == expected.probabilities
        assert one.num_implausible == expected.num_implausible.item()


def test_what_is_about_entities_that_came_after_the_calibration_has_no_probability(graph, quick):
    run = run_of(graph, quick)
    run.calibration = replace(calibration_of(run), num_entities=30)
    asked = [*queries(graph), (35, 0, -1), (-1, 1, 35)]
    none = 0
    for query, one in zip(asked, prepared(run).answer(asked, Choice(k=50, any=True)), strict=True):
        assert one.probabilities == answer(run, torch.tensor([query]), Choice(k=50, any=True)).probabilities
        for id, probability in zip(one.ids, one.probabilities, strict=True):
            assert (probability is None) == (max(id, *query[::2]) >= 30)
            none += probability is None
    assert 0 < none < sum(len(one.ids) for one in prepared(run).answer(asked, Choice(k=50, any=True)))


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_an_answer_does_not_depend_on_what_else_is_asked(graph, quick, name):
    run = run_of(graph, quick, name)
    if not PreparedRun.can_prepare(run):
        assert run.model.metric is None or run.model.projects_entities
        return
    several = prepared(run)
    asked = queries(graph)
    together = several.answer(asked, Choice(k=4))
    assert together == [several.answer([query], Choice(k=4))[0] for query in asked]


def test_models_with_one_row_for_both_sides_keep_one_copy(graph, quick):
    rows = PreparedRun.prepare(run_of(graph, quick, "pairre"))
    assert rows["head"] is rows["tail"]
    rows = PreparedRun.prepare(run_of(graph, quick, "gc-ote"))
    assert rows["head"] is not rows["tail"]


def test_of_equal_scores_the_smallest_id_wins(graph, quick):
    run = run_of(graph, quick)
    run.model.entity.fill_(1.0)
    [found] = prepared(run).answer([(5, 2, -1)], Choice(k=6, any=True, known=True))
    assert found.ids == [0, 1, 2, 3, 4, 5]
    [found] = prepared(run).answer([(2, 2, -1)], Choice(k=4))
    assert found.ids == sorted(found.ids)
    assert 2 not in found.ids


def test_single_queries_are_answered_as_many_are(graph, quick):
    run = run_of(graph, quick)
    head, relation, tail = next(graph.names(graph.test[:1]))
    asked = [[head, relation, None], [None, relation, tail], [head, None, tail]]
    members = ("head", "relation", "tail")
    single = [predict(run, **dict(zip(members, query, strict=True)), known=True) for query in asked]
    assert single == predict_many(run, asked, known=True)
    assert [found.triples.tolist() for found in single] == [
        f.triples.tolist() for f in predict_many(run, asked, known=True)
    ]
    assert (
        predict(run, head=head, relation=relation, k=300, any=True) == predict_many(run, asked[:1], k=300, any=True)[0]
    )


def test_what_is_kept_follows_the_run(graph, quick):
    head, relation, _ = next(graph.names(graph.test[:1]))
    query = {"head": head, "relation": relation}
    run = run_of(graph, quick)
    first = predict(run, **query)
    assert run.prepared is not None
    again = pickle.loads(pickle.dumps(run))
    assert again.prepared is None
    assert predict(again, **query) == first
    run.model.relation.mul_(2.0)
    changed = predict(run, **query)
    assert changed != first
    assert changed == predict_many(run, [[head, relation, None]])[0]
    calibrate(run, base_rate=0.01)
    assert {answer.base_rate for answer in predict(run, **query)} == {0.01}
    unlabelled = replace(run, graph=replace(graph, valid=graph.valid[:0]), calibration=None)
    assert predict(unlabelled, **query)[0].probability is None


def test_scores_that_are_not_finite_are_an_error(graph, quick):
    run = run_of(graph, quick)
    calibration_of(run)
    run.model.entity[7] = float("nan")
    with pytest.raises(PairREError, match="not finite"):
        prepared(run).answer([(3, 0, -1)], Choice(any=True))


def test_a_mapped_run_has_the_same_tables(graph, quick, tmp_path):
    run_of(graph, quick).save(tmp_path / "run")
    copied, mapped = load_run(tmp_path / "run"), load_run(tmp_path / "run", mapped=True)
    assert torch.equal(copied.model.entity, mapped.model.entity)
    assert torch.equal(copied.model.relation, mapped.model.relation)
    assert not mapped.model.entity.requires_grad
    query = torch.tensor([[3, 0, -1]])
    assert torch.equal(answer(copied, query, Choice()).scores, answer(mapped, query, Choice()).scores)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 50, 63, 64, 65, 100, 127, 200, 255, 400])
def test_listed_candidates_have_the_bits_of_shared_ones(width):
    rows, query, scale = (torch.randn(n, width, generator=torch.Generator().manual_seed(n)) for n in (90, 1, 2))
    chosen = torch.randperm(90)[:61].sort().values
    expected = backend("cpu").score_candidates("l1", query, scale[:1], rows[chosen])[0]
    best = best_of_query(
        "l1", query.numpy(), scale[:1].numpy(), rows.numpy(), 61, candidates=chosen.numpy(), known=NONE_KNOWN
    )
    assert dict(zip(best.ids, best.scores, strict=True)) == dict(zip(chosen.tolist(), expected.tolist(), strict=True))


@pytest.mark.parametrize("points", [[], [[0.5, -1.0]], [[-3.0, -4.0], [-1.0, -0.5], [0.25, 2.0]]], ids=len)
def test_probabilities_have_the_bits_of_the_calibration(points):
    offsets = torch.tensor([0.3, -0.2, 0.0], dtype=torch.float64)
    table = torch.tensor(points, dtype=torch.float64)  # without points, as a run folder has it: [0]
    calibration = Calibration(1.7, 0.4, offsets, table, 0.1, 5, 50, "answers", 5)
    scores = torch.randn(91, generator=torch.Generator().manual_seed(3)) * 4
    relations = torch.arange(91) % 5  # some came after the fit
    expected = calibration.probability(scores, relations).tolist()
    curve = Curve(calibration)
    found = [curve.probabilities([s], r)[0] for s, r in zip(scores.tolist(), relations.tolist(), strict=True)]
    assert found == expected
    for relation in range(5):
        rows = relations == relation
        assert curve.probabilities(scores[rows].tolist(), relation) == [
            p for p, one in zip(expected, rows, strict=True) if one
        ]
