"""What rules imply, against a search over all pairs of entities by the definition of each kind."""

import itertools
import math

import numpy as np
import pytest
import torch

from pairre.graph import Graph, Vocabulary
from pairre.rules import Rule, RuleBook, apply_rules
from pairre.rules import apply as apply_module
from pairre.support.errors import NameNotFoundError, RuleError

NAMES = ["a", "b", "c"]
RULES = [
    Rule(("a",), "b", "subrelation", 0.9),
    Rule(("a",), "b", "inverse", 0.5),
    Rule(("c",), "c", "symmetry", 1.0),
    Rule(("b",), "c", "equivalence", 0.7),
    Rule(("a", "b"), "c", "composition", 0.7),
    Rule(("c", "c"), "a", "composition", 0.3),
    Rule(("b", "a"), "a", "composition", 0.3),
]


@pytest.fixture(params=[0, 1])
def graph(request):
    """Random facts, among them one of an entity with itself, in three splits."""
    random = np.random.default_rng(request.param)
    triples = np.unique(random.integers(0, [9, 3, 9], (45, 3)), axis=0)
    if request.param:
        triples = triples[(triples[:, 0] != triples[:, 2]) | (triples[:, 1] != 2)]
    random.shuffle(triples)
    splits = (torch.from_numpy(part.astype(np.int32)) for part in np.split(triples, [25, 30]))
    return Graph("small", Vocabulary([f"e{i}" for i in range(9)], "entity"), Vocabulary(NAMES, "relation"), *splits)


def holds(rule, facts, x, z):
    """The conclusions of a rule for a pair of entities."""
    if rule.kind == "composition":
        one, two = rule.body
        met = any((x, one, y) in facts and (y, two, z) in facts for y in range(9))
        return {rule.conclusion} if met else set()
    (body,), conclusion = rule.body, rule.conclusion
    if rule.kind in ("inverse", "symmetry"):
        return {conclusion} if (z, body, x) in facts else set()
    found = {conclusion} if (x, body, z) in facts else set()
    return found | ({body} if rule.kind == "equivalence" and (x, conclusion, z) in facts else set())


def brute_force(graph, rules, combine):
    facts = {(h, NAMES[r], t) for split in ("train", "valid", "test") for h, r, t in graph.split(split).tolist()}
    loops = {NAMES[r] for h, r, t in graph.train.tolist() if h == t}
    implied = {}
    for x, z in itertools.product(range(9), repeat=2):
        for rule in rules:
            for conclusion in holds(rule, facts, x, z):
                if (x, conclusion, z) not in facts and (x != z or conclusion in loops):
                    implied.setdefault((x, conclusion, z), []).append(rule)
    combined = {
        "max": lambda c: max(c),
        "noisy-or": lambda c: 1 - math.prod(1 - x for x in c),
    }[combine]
    rows = [(-combined([r.confidence for r in fired]), NAMES.index(c), x, z) for (x, c, z), fired in implied.items()]
    return [
        (f"e{x}", NAMES[c], f"e{z}", -confidence, set(implied[x, NAMES[c], z])) for confidence, c, x, z in sorted(rows)
    ]


@pytest.mark.parametrize("combine", ["max", "noisy-or"])
@pytest.mark.parametrize("k", [1, 8, 1000])
def test_equals_brute_force(graph, combine, k, monkeypatch):
    wanted = brute_force(graph, RULES, combine)
    assert len(wanted) > 20
    for most in (1 << 22, 5):
        monkeypatch.setattr(apply_module, "_MAX_PAIRS", most)
        done = []
        found = apply_rules(graph, RULES, k=k, combine=combine, progress=done.append)
        assert [f.confidence for f in found] == pytest.approx([w[3] for w in wanted[:k]])
        if combine == "max":  # sums of logarithms may order equal products differently
            assert [(f.head, f.relation, f.tail) for f in found] == [w[:3] for w in wanted[:k]]
        by_names = {w[:3]: w[4] for w in wanted}
        assert all(set(f.rules) == by_names[f.head, f.relation, f.tail] for f in found)
        assert all(a.confidence >= b.confidence for f in found for a, b in itertools.pairwise(f.rules))
        assert sum(done) == pytest.approx(1)


def test_the_least_confidence(graph):
    found = apply_rules(graph, RULES, min_confidence=0.7)
    assert [(f.head, f.relation, f.tail) for f in found] == [
        w[:3] for w in brute_force(graph, RULES, "max") if w[3] >= 0.7
    ]


def test_answers_on_the_side_of_heads_are_the_same_facts(graph):
    book = RuleBook(graph, RULES, graph.train, "noisy-or")
    for conclusion in range(3):
        facts = []
        for side, anchors in (
            ("tail", np.arange(9)),
            ("head", np.array([0, 1, 2, 4, 5, 6, 7, 8])),
            ("head", np.array([3])),
        ):
            for anchor, answer, confidence in book.implied(conclusion, side, anchors):
                pairs = zip(*((anchor, answer) if side == "tail" else (answer, anchor)), strict=True)
                facts.append(dict(zip(pairs, confidence.round(9), strict=True)))
        forward, *backward = facts
        assert forward == {**backward[0], **(backward[1] if len(backward) > 1 else {})}


def test_bad_requests(graph):
    for options, message in (
        ({"k": 0}, "k must be 1 or more"),
        ({"min_confidence": 2}, "a number from 0 to 1"),
        ({"combine": "mean"}, "one of max, noisy-or"),
    ):
        with pytest.raises(RuleError, match=message):
            apply_rules(graph, RULES, **options)
    with pytest.raises(NameNotFoundError, match="no relation named 'd'"):
        apply_rules(graph, [Rule(("d",), "a", "subrelation", 1.0)])
    assert apply_rules(graph, []) == []
