"""Leakage between splits, against a count by definition."""

from itertools import product
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pairre.graph import Graph, Vocabulary
from pairre.graph import leakage as leakage_module
from pairre.graph.leakage import MIN_OVERLAP, describe_leakage, leakage

WAYS = ("exact", "inverse", "equivalent", "any", "linked")


def graph_of(train, test, num_entities, num_relations) -> Graph:
    return Graph(
        "small",
        Vocabulary([f"e{i}" for i in range(num_entities)], "entity"),
        Vocabulary([f"r{i}" for i in range(num_relations)], "relation"),
        *(torch.tensor(list(triples), dtype=torch.int32).reshape(-1, 3) for triples in (train, [], test)),
    )


def by_definition(train, test, num_relations) -> dict[str, int]:
    train = set(train)
    pairs = {r: {(h, t) for h, s, t in train if s == r} for r in range(num_relations)}
    turned = {r: {(t, h) for h, t in pairs[r]} for r in pairs}

    def similar(one, other):
        shared = len(one & other)
        return shared >= leakage_module.MIN_SHARED and shared >= MIN_OVERLAP * max(len(one), len(other))

    counts = dict.fromkeys(WAYS, 0)
    for h, r, t in test:
        ways = {
            "exact": (h, r, t) in train,
            "inverse": any((h, t) in turned[s] and similar(pairs[r], turned[s]) for s in pairs),
            "equivalent": any((h, t) in pairs[s] and similar(pairs[r], pairs[s]) for s in pairs if s != r),
        }
        ways["any"] = any(ways.values())
        ways["linked"] = any((h, t) in pairs[s] or (h, t) in turned[s] for s in pairs)
        for way, leaks in ways.items():
            counts[way] += leaks
    return counts


@settings(max_examples=60)
@given(st.data())
def test_counts_are_those_of_the_definition(data):
    every = list(product(range(4), range(3), range(4)))
    train, test = (data.draw(st.lists(st.sampled_from(every), max_size=60)) for _ in range(2))
    with patch.object(leakage_module, "MIN_SHARED", 2):  # so that so few triples have relations that are alike
        found = leakage(graph_of(train, test, 4, 3))
        assert {way: found[way] for way in WAYS} == by_definition(train, test, 3)
    assert found["fraction"] == pytest.approx(found["any"] / max(1, len(test)))


def test_matches_in_parts_are_the_same(graph, monkeypatch):
    whole = leakage(graph)
    monkeypatch.setattr(leakage_module, "_PART", 3)
    assert leakage(graph) == whole
    assert whole["any"] == whole["inverse"] > 0  # `next` and `previous` are inverse, `beside` is symmetric


def test_what_is_too_large_is_said(graph, monkeypatch):
    for limit, words in (("MAX_MATCHES", "same entities"), ("MAX_TRIPLES", "128 triples")):
        monkeypatch.setattr(leakage_module, limit, 1)
        found = leakage(graph)
        assert words in found["skipped"]
        assert describe_leakage(found, "test") == ""


def test_what_is_said():
    found = leakage(graph_of([(0, 0, 1), (1, 0, 2)], [(0, 0, 1), (2, 0, 1)], 3, 1))
    assert describe_leakage(found, "test") == "50.0% of the 2 test triples follow from train: 1 are in train"
    assert describe_leakage(leakage(graph_of([(0, 0, 1)], [(2, 0, 1)], 3, 1)), "test") == ""


@pytest.mark.parametrize(
    ("name", "fraction", "linked"), [("fb15k", 0.743, 0.809), ("fb15k-237", 0, 0), ("wn18rr", 0.347, 0.350)]
)
def test_known_flaws_show(public, name, fraction, linked):
    """Toutanova and Chen count 81% of FB15k's test triples; a third of WN18RR's have a symmetric relation."""
    from pairre import load_graph

    found = leakage(load_graph(public / name))
    assert found["fraction"] == pytest.approx(fraction, abs=5e-4)
    assert found["linked_fraction"] == pytest.approx(linked, abs=5e-4)
