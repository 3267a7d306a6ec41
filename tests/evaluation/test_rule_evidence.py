"""Ranks with rules beside the model, against scores that are added up one by one."""

import pytest
import torch

from pairre.evaluation import rule_evidence
from pairre.evaluation.ranking import rank
from pairre.evaluation.rule_evidence import RuleEvidence, evaluate_with_rules, rank_with_rules
from pairre.models import PairRE
from pairre.rules import Rule, RuleBook
from pairre.runs import Run
from pairre.support.errors import GraphError

RULES = [
    Rule(("next",), "previous", "inverse", 1.0),
    Rule(("beside",), "beside", "symmetry", 0.8),
    Rule(("next", "next"), "beside", "composition", 0.2),
]


@pytest.fixture
def run(graph, quick):
    model = PairRE(graph.num_entities, graph.num_relations, 5)
    model.initialise(0.5, 0)
    return Run(graph, quick, model.requires_grad_(False))


def evidence(run, h, r, t):
    """The confidence of the best rule that implies a triple."""
    facts = {tuple(f) for f in run.graph.names(run.graph.train)}
    names = [run.graph.entities[i] for i in range(run.graph.num_entities)]
    found = [0.0]
    for rule in RULES:
        if rule.conclusion != r:
            continue
        if rule.kind == "composition":
            fires = any((h, rule.body[0], y) in facts and (y, rule.body[1], t) in facts for y in names)
        else:
            fires = (t, rule.body[0], h) in facts
        found += [rule.confidence] * fires
    return max(found)


@pytest.mark.parametrize("side", ["head", "tail"])
def test_ranks_equal_sums_one_by_one(run, side, monkeypatch):
    graph = run.graph
    book = RuleBook(graph, RULES, graph.train)
    triples, weights = graph.valid[:9], torch.tensor([[0.0, 0.0, 0.0], [0.3, 0.6, 0.9]], dtype=torch.float64)
    monkeypatch.setattr(rule_evidence, "_MAX_SCORES", {"cpu": 4 * graph.num_entities})
    known = {t for s in ("train", "valid", "test") for t in graph.names(graph.split(s))}
    plain = rank(run.model, triples, graph.known, side)
    for weight, ranks in zip(weights, rank_with_rules(run, triples, side, book, weights), strict=True):
        for n, (h, r, t) in enumerate(graph.names(triples)):
            scores = {}
            for candidate in range(graph.num_entities):
                name = graph.entities[candidate]
                triple = (h, r, name) if side == "tail" else (name, r, t)
                if triple not in known or triple == (h, r, t):
                    ids = [[graph.entities.id(triple[0]), graph.relations.id(r), graph.entities.id(triple[2])]]
                    added = weight[ids[0][1]].item() * evidence(run, *triple)
                    scores[triple] = run.model.score(torch.tensor(ids)).item() + added
            true = scores.pop((h, r, t))
            assert ranks.higher[n] == sum(s > true + 1e-6 for s in scores.values())
            assert ranks.num_candidates[n] == len(scores) + 1
        if not weight.any():
            assert torch.equal(ranks.values(), plain.values())


def test_weights_lift_the_rank_where_rules_are_right(run, monkeypatch):
    result = evaluate_with_rules(run, RULES, "test")
    assert result["with_rules"]["both"]["mrr"] > 2 * result["without_rules"]["both"]["mrr"]
    assert result["weights"]["previous"] > 0
    wrong = [Rule(("next",), "previous", "subrelation", 0.9)]
    assert RuleEvidence.fit(run, wrong).weights.eq(0).all()


def test_a_validation_split_is_needed(run):
    run.graph = type(run.graph)(
        "no valid", run.graph.entities, run.graph.relations, run.graph.train, run.graph.valid[:0], run.graph.test
    )
    with pytest.raises(GraphError, match="no validation split"):
        evaluate_with_rules(run, RULES)
