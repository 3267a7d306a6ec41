"""Rules of both kinds as models: what they answer, what is kept of it, and how they stand beside others."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest
import torch

from pairre.evaluation.ranking import rank
from pairre.models import Ensemble, EntityRules, RuleScores, model_class, rule_model
from pairre.models.rule_model import AnswerCache
from pairre.rules import Rule
from pairre.rules.entity_rules import EntityRuleBook
from pairre.support.errors import PairREError
from tests.conftest import planted_graph

RULES = [Rule(("next",), "previous", "inverse", 1.0), Rule(("beside",), "beside", "symmetry", 0.8)]
SIDES = pytest.mark.parametrize("side", ["head", "tail"])


def member(graph, name="pairre"):
    made = model_class(name)(graph.num_entities, graph.num_relations, 6)
    made.initialise(0.5, 0)
    return made.requires_grad_(False)


def from_book(model, triples, side):
    """Scores of all entities, filled in from what the book answers."""
    scores = torch.zeros(len(triples), model.num_entities)
    anchors = triples[:, 0 if side == "tail" else 2].numpy()
    for row, (entities, found) in zip(scores, model.answers(triples[:, 1].numpy(), anchors, side), strict=True):
        row[torch.from_numpy(entities).long()] = torch.from_numpy(found).float()
    return scores


@SIDES
def test_scores_are_what_the_book_answers(graph, side):
    model, triples = EntityRules(graph), graph.valid.long()
    expected = from_book(model, triples, side)
    assert (expected > 0).sum() > 50
    assert torch.equal(model.score_all(triples, side), expected)
    some = torch.tensor([[3, 3, 1, 39, 0]]).expand(len(triples), -1)
    assert torch.equal(model.score_candidates(triples, side, some), expected.gather(1, some))
    true = triples[:, [0 if side == "head" else 2]]
    torch.testing.assert_close(model.score(triples, side), expected.gather(1, true)[:, 0])


@SIDES
def test_both_kinds_stand_beside_other_members(graph, side):
    """Their queries have other widths, which are filled up; an entity without an answer is not the entity 0."""
    members = [member(graph), RuleScores(graph, RULES), EntityRules(graph)]
    weights, triples = torch.tensor([0.5, 2.0, 3.0]).expand(3, -1), graph.valid.long()
    made = Ensemble(members, weights)
    expected = sum(w * one.score_all(triples, side) for w, one in zip(weights[0], members, strict=True))
    torch.testing.assert_close(made.score_all(triples, side), expected)
    relations = made.score_relations(triples[:, 0], triples[:, 2])
    torch.testing.assert_close(relations.gather(1, triples[:, 1:2])[:, 0], made.score(triples, "tail"))
    assert [type(one) for one in made.rule_members()] == [RuleScores, EntityRules]
    assert made.rules is members[1]
    assert made.embeddings() == members[:1]
    for again in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert torch.equal(again.score_all(triples, side), made.score_all(triples, side))


def test_many_queries_are_answered_ahead_in_blocks(graph, monkeypatch):
    monkeypatch.setattr("pairre.models.ensemble._AHEAD", 3)
    made = Ensemble([member(graph), EntityRules(graph)], torch.ones(3, 2))
    whole = rank(Ensemble([member(graph), EntityRules(graph)], torch.ones(3, 2)), graph.valid, graph.known, "tail")
    asked = []
    answers = made.rule_members()[0].book.answers
    monkeypatch.setattr(
        made.rule_members()[0].book, "answers", lambda r, *rest: asked.append(len(r)) or answers(r, *rest)
    )
    made.rule_members()[0].cache._held.clear()
    found = rank(made, graph.valid, graph.known, "tail")
    assert torch.equal(found.higher, whole.higher)
    assert max(asked) <= 3
    assert sum(asked) == len({(h, r) for h, r, _ in graph.valid.tolist()})


def test_the_same_query_is_answered_once_for_all_models_of_a_graph(monkeypatch):
    graph, calls = planted_graph(), []
    answers = EntityRules.answers
    monkeypatch.setattr(
        EntityRules, "answers", lambda self, r, a, side: calls.append(len(r)) or answers(self, r, a, side)
    )
    first = EntityRules(graph).score_all(graph.valid.long(), "tail")
    assert torch.equal(EntityRules(graph).score_all(graph.valid.long(), "tail"), first)
    assert len(calls) == 1
    EntityRules(graph).score_all(graph.valid.long(), "head")
    EntityRules(planted_graph()).score_all(graph.valid.long(), "head")
    assert len(calls) == 3
    number = len(EntityRuleBook._of_graph)
    del graph
    gc.collect()
    assert len(EntityRuleBook._of_graph) < number


def test_the_oldest_answers_go_where_there_is_no_room(monkeypatch):
    monkeypatch.setattr(rule_model, "_MAX_CACHED", 40)
    monkeypatch.setattr(rule_model, "_SHARE_CACHED", 1)
    cache = AnswerCache()
    rows = {("tail", i, 0): np.full(4, i, np.float32) for i in range(4)}
    for key, row in rows.items():
        cache.add({key: row})
        cache.add({key: row})  # counts once
    assert [cache.get(key) is not None for key in rows] == [False, False, True, True]
    cache.add({("tail", 9, 0): np.zeros(100, np.float32)})
    assert cache.get(("tail", 9, 0)) is None
    assert cache.get(("tail", 3, 0)) is None
    assert cache._size == 0
    monkeypatch.setattr(rule_model, "_MAX_CACHED", 0)
    graph = planted_graph()
    model = RuleScores(graph, RULES)
    assert torch.equal(model.score_all(graph.valid.long(), "tail"), from_book(model, graph.valid.long(), "tail"))


def test_an_ensemble_has_rules_of_each_kind_once_and_last(graph):
    one, entity, given = member(graph), EntityRules(graph), RuleScores(graph, RULES)
    Ensemble([one, entity, given], torch.ones(3, 3))
    for wrong in ([entity, one], [one, entity, entity], [given, one, entity]):
        with pytest.raises(PairREError, match="rules are the last members, and there is one of each kind"):
            Ensemble(wrong, torch.ones(3, len(wrong)))


def test_no_entity_is_an_answer_where_train_is_empty():
    graph = planted_graph()
    empty = type(graph)(graph.name, graph.entities, graph.relations, graph.train[:0], graph.valid, graph.test)
    assert not EntityRules(empty).score_all(graph.valid.long(), "tail").any()
