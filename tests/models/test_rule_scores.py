"""Rules as a model: a score is the confidence of the best rule that concludes a triple from facts of train."""

import numpy as np
import pytest
import torch

from pairre.models import RuleScores, rule_model
from pairre.rules import Rule, RuleBook
from pairre.support.errors import RuleError

RULES = [
    Rule(("next",), "previous", "inverse", 1.0),
    Rule(("beside",), "beside", "symmetry", 0.8),
    Rule(("next", "next"), "beside", "composition", 0.2),
    Rule(("next",), "beside", "subrelation", 0.5),
]


def by_hand(graph, side, triples, combine):
    """Confidences of all entities from the facts themselves, as numbers one by one."""
    book, found = RuleBook(graph, RULES, graph.train, combine), torch.zeros(len(triples), graph.num_entities)
    for n, (h, r, t) in enumerate(triples.tolist()):
        for entity in range(graph.num_entities):
            fired = book.firing(*((h, r, entity) if side == "tail" else (entity, r, t)))
            values = [rule.confidence for rule in fired]
            if values:
                found[n, entity] = max(values) if combine == "max" else 1 - np.prod([1 - v for v in values])
    return found


@pytest.mark.parametrize("side", ["head", "tail"])
@pytest.mark.parametrize("combine", ["max", "noisy-or"])
def test_scores_are_confidences(graph, side, combine):
    model, triples = RuleScores(graph, RULES, combine), graph.valid.long()
    expected = by_hand(graph, side, triples, combine)
    assert (expected > 0).any()
    torch.testing.assert_close(model.score_all(triples, side), expected)
    ids = torch.tensor([[3, 3, 1, 39, 0]]).expand(len(triples), -1)  # one of them twice
    torch.testing.assert_close(model.score_candidates(triples, side, ids), expected.gather(1, ids))
    torch.testing.assert_close(model.score_candidates(triples, side, ids[0]), expected[:, ids[0]])
    true = triples[:, [0 if side == "head" else 2]]
    torch.testing.assert_close(model.score(triples, side), expected.gather(1, true)[:, 0])


def test_candidates_may_repeat_and_have_any_order(graph):
    model, triples = RuleScores(graph, RULES), graph.valid.long()
    _, query = model.make_queries(triples, "tail")
    ids = torch.tensor([5, 2, 2, 30, 7, 5])
    rows = model.prepare_entities(model.entity_rows(ids), "tail", None)
    expected = model.score_all(triples, "tail")[:, ids]
    assert torch.equal(model.metric.score_candidates(*query, rows), expected)
    own = torch.tensor([[0, 3], [1, 2]])
    few = model.metric.score_candidates(query[0][:2], None, rows, own)
    assert torch.equal(few, expected[:2].gather(1, own))


def test_only_the_most_confident_answers_count(graph, monkeypatch):
    monkeypatch.setattr(rule_model, "MAX_ANSWERS", 1)
    triples = torch.tensor([[3, 2, 0]])
    full = by_hand(graph, "tail", triples, "max")
    assert (full > 0).sum() > 1
    scores = RuleScores(graph, RULES).score_all(triples, "tail")
    assert (scores > 0).sum() == 1
    assert scores.max() == full.max()


def test_no_rules_score_zero(graph):
    assert not RuleScores(graph, []).score_all(graph.valid.long(), "tail").any()


def test_too_many_entities_are_refused(graph, monkeypatch):
    monkeypatch.setattr(rule_model, "_MAX_ENTITIES", 10)
    with pytest.raises(RuleError, match="at most 10 entities"):
        RuleScores(graph, RULES)
