"""Predictions by name, against scores looked up one at a time."""

import pytest
import torch

from pairre.inference.predict import predict
from pairre.models import PairRE
from pairre.runs import Run
from pairre.support.errors import NameNotFoundError, PairREError


@pytest.fixture
def run(graph, quick):
    model = PairRE(graph.num_entities, graph.num_relations, 5)
    model.initialise(0.5, 0)
    return Run(graph, quick, model.requires_grad_(False))


def score(run, answer):
    ids = [
        run.graph.entities.id(answer.head),
        run.graph.relations.id(answer.relation),
        run.graph.entities.id(answer.tail),
    ]
    return run.model.score(torch.tensor([ids]))[0].item()


@pytest.mark.parametrize(
    "given", [{"head": "e3", "relation": "next"}, {"relation": "beside", "tail": "e7"}, {"head": "e1", "tail": "e2"}]
)
@pytest.mark.parametrize("known", [True, False])
def test_answers_are_the_best_in_order(run, given, known):
    answers = predict(run, **given, k=1000, known=known)
    graph_triples = {t for s in ("train", "valid", "test") for t in run.graph.names(run.graph.split(s))}
    scores = [a.score for a in answers]
    assert scores == sorted(scores, reverse=True)
    assert [a.rank for a in answers] == list(range(1, len(answers) + 1))
    for a in answers:
        assert a.score == pytest.approx(score(run, a), abs=1e-5)
        assert all(getattr(a, member) == name for member, name in given.items())
        assert (a.known is not None) == ((a.head, a.relation, a.tail) in graph_triples)
    total = run.graph.num_relations if "relation" not in given else run.graph.num_entities
    place = {"head": 0, "relation": 1, "tail": 2}
    num_known = sum(all(triple[place[m]] == name for m, name in given.items()) for triple in graph_triples)
    assert len(answers) == (total if known else total - num_known)
    assert any(a.known for a in answers) == known


def test_the_split_of_a_known_triple_is_named(run):
    h, r, t = next(run.graph.names(run.graph.valid[:1]))
    answers = predict(run, head=h, relation=r, k=100, known=True)
    assert next(a.known for a in answers if a.tail == t) == "valid"


def test_k_limits_the_answers(run):
    assert len(predict(run, head="e0", relation="next", k=3)) == 3


def test_unknown_names_get_the_nearest(run):
    with pytest.raises(NameNotFoundError, match="no entity named 'e1000'; nearest: 'e10'"):
        predict(run, head="e1000", relation="next")
    with pytest.raises(NameNotFoundError, match="no relation named 'nxt'; nearest: 'next'"):
        predict(run, head="e1", relation="nxt")


@pytest.mark.parametrize("given", [{}, {"head": "e1"}, {"head": "e1", "relation": "next", "tail": "e2"}])
def test_two_members_must_be_given(run, given):
    with pytest.raises(PairREError, match="give two of head, relation and tail"):
        predict(run, **given)
    with pytest.raises(PairREError, match="k must be 1 or more"):
        predict(run, head="e1", relation="next", k=0)
