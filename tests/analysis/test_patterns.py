"""Patterns: the maths of the residuals, the search against brute force, and the detector on planted graphs."""

import itertools
import sys
from importlib import import_module

import numpy as np
import pytest
import torch

import pairre
from conftest import planted_graph
from pairre.analysis.patterns import (
    KINDS,
    Comparison,
    Overlaps,
    Pattern,
    Vectors,
    agreement,
    compare,
    paired_vectors,
    patterns_in_triples,
    products,
    search,
    search_frequent,
)
from pairre.analysis.patterns.planted import planted_patterns
from pairre.analysis.patterns.search import MIN_OVERLAP
from pairre.graph import Graph, Vocabulary
from pairre.models import PairRE, model_class
from pairre.settings import from_values

HOLDING = {"symmetry": [[0]], "inverse": [[1, 2]], "subrelation": [[1, 3]], "composition": [[1, 4, 5]]}
EVERYTHING = dict.fromkeys(KINDS, -1.0)


def holding_vectors(seed=0, dim=50):
    """Relation 0 is symmetric, 1 and 2 are inverses, 1 → 3 and 1 ∘ 4 → 5; 6 and 7 have nothing to do with any."""
    random = np.random.default_rng(seed)
    head, tail = random.standard_normal((2, 8, dim)).astype(np.float32)
    tail[0] = head[0] * random.choice([-1, 1], dim)
    head[2], tail[2] = tail[1], head[1]
    alpha = random.uniform(-1, 1, dim)
    head[3], tail[3] = alpha * head[1], alpha * tail[1]
    head[5], tail[5] = head[1] * head[4], tail[1] * tail[4]
    return Vectors(head, tail)


@pytest.mark.parametrize("kind", KINDS)
def test_what_holds_has_no_residual_and_full_agreement(kind):
    vectors, ids = holding_vectors(), np.array(HOLDING[kind])
    x, y = products(vectors, kind, ids)
    np.testing.assert_allclose(x, y, atol=1e-5)
    assert agreement(vectors, kind, ids) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_unrelated_vectors_do_not_agree(kind):
    found = agreement(holding_vectors(dim=2000), kind, np.array([[6, 7, 4][: len(HOLDING[kind][0])]]))
    assert found == pytest.approx(0.36 if kind == "symmetry" else 0.2, abs=0.06)


@pytest.mark.parametrize("kind", KINDS)
def test_small_vectors_gain_nothing(kind):
    """A relation scaled as a whole agrees as before; so do relations that are small on one side, all but symmetries."""
    vectors, ids = holding_vectors(), np.array([[6, 7, 4][: len(HOLDING[kind][0])]])
    before = agreement(vectors, kind, ids)
    small = Vectors(*(part * 1e-3 for part in vectors))
    if kind == "subrelation":  # both scaled, so that neither is longer than it was beside the other
        assert agreement(small, kind, ids) == pytest.approx(before, rel=1e-4)
    else:
        one = Vectors(*(part.copy() for part in vectors))
        one.head[6] *= 1e-3
        one.tail[6] *= 1e-3
        assert agreement(one, kind, ids) == pytest.approx(before, rel=1e-4)
    many_to_one = Vectors(vectors.head * 1e-3, vectors.tail)
    assert agreement(many_to_one, kind, ids)[0] < before[0] + 0.1


def test_relations_of_zeros_have_no_pattern():
    zeros = Vectors(np.zeros((2, 4), np.float32), np.zeros((2, 4), np.float32))
    for kind, ids in HOLDING.items():
        assert agreement(zeros, kind, np.zeros_like(ids)) == 0
    assert search(zeros, Overlaps.all(2)) == {kind: [] for kind in KINDS}


def test_tied_vectors_are_ordered():
    """r2 = r1 ∘ cos θ as a rule ties them: r1 → r2 holds, r2 → r1 only as far as r2 is no shorter."""
    vectors = holding_vectors()
    there, back = agreement(vectors, "subrelation", np.array([[1, 3], [3, 1]]))
    assert there == pytest.approx(1, abs=1e-5)
    assert back < 0.7


def brute_force(vectors, overlaps):
    """Every instance of every pattern, one at a time."""
    every = range(len(vectors.head))
    found = {("symmetry", (r,)) for r in every}
    found |= {
        ("inverse", (a, b)) for a in every for b in every if a < b and overlaps.chain[a, b] and overlaps.chain[b, a]
    }
    pairs = itertools.permutations(every, 2)
    length = [np.hypot(head, tail).sum() for head, tail in zip(*vectors, strict=True)]
    pairs = {(a, b) for a, b in pairs if overlaps.heads[a, b] and overlaps.tails[a, b] and length[a] >= length[b]}
    found |= {("subrelation", pair) for pair in pairs}
    for a, b, c in itertools.product(every, repeat=3):
        if c not in (a, b) and overlaps.chain[a, b] and overlaps.heads[a, c] and overlaps.tails[b, c]:
            found.add(("composition", (a, b, c)))
    return {Pattern(kind, ids): agreement(vectors, kind, np.array([ids]))[0] for kind, ids in found}


@pytest.mark.parametrize("everything", [True, False])
def test_the_search_is_exact(everything):
    vectors = holding_vectors(dim=7)
    overlaps = Overlaps.all(8) if everything else Overlaps(*(np.random.default_rng(1).random((3, 8, 8)) < 0.5))
    expected = brute_force(vectors, overlaps)
    found = search(vectors, overlaps, EVERYTHING)
    assert {p for patterns in found.values() for p in patterns} == set(expected)
    for patterns in found.values():
        scores = [p.score for p in patterns]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([expected[p] for p in patterns], abs=1e-5)
    best = search(vectors, overlaps, EVERYTHING, max_patterns=3)
    assert all(best[kind] == found[kind][:3] for kind in KINDS)


def test_the_search_finds_what_holds():
    found = search(holding_vectors(), Overlaps.all(8))
    for kind, ids in HOLDING.items():
        assert Pattern(kind, tuple(ids[0])) in found[kind]
    assert not any({6, 7} & set(p.relations) for patterns in found.values() for p in patterns)


def test_overlaps_are_those_of_sets(monkeypatch):
    random = np.random.default_rng(0)
    triples = torch.from_numpy(np.stack([random.integers(n, size=80) for n in (30, 5, 30)], 1).astype(np.int32))
    names = [Vocabulary([str(i) for i in range(n)], kind) for n, kind in ((30, "entity"), (5, "relation"))]
    graph = Graph("g", *names, triples, triples[:0], triples[:0])
    monkeypatch.setattr(sys.modules[search.__module__], "_ELEMENTS", 35)  # seven entities at a time
    overlaps = Overlaps.of(graph)
    heads, tails = ([{t[c] for t in triples.tolist() if t[1] == r} for r in range(5)] for c in (0, 2))
    for found, one, other in (
        (overlaps.heads, heads, heads),
        (overlaps.tails, tails, tails),
        (overlaps.chain, tails, heads),
    ):
        for a, b in itertools.product(range(5), repeat=2):
            shared = len(one[a] & other[b])
            assert found[a, b] == (shared > 0 and shared >= MIN_OVERLAP * min(len(one[a]), len(other[b])))


def test_only_pairre_has_pairs(graph):
    assert paired_vectors(model_class("transe")(4, 3, 8)) is None
    model = PairRE(4, 3, 8, reciprocal=True)
    model.initialise(1.0, 0)
    head, tail = paired_vectors(model)
    assert head.shape == tail.shape == (3, 8)
    np.testing.assert_array_equal(np.concatenate([head, tail], 1), model.relation[:3].detach().numpy())


def test_patterns_of_triples():
    """In the ring, `previous` is the inverse of `next`, and both imply `beside`, which is symmetric."""
    found = patterns_in_triples(planted_graph())
    expected = {("symmetry", (2,)), ("inverse", (0, 1)), ("subrelation", (0, 2)), ("subrelation", (1, 2))}
    assert {(p.kind, p.relations) for p in found} >= expected
    assert all(0.7 <= p.score <= 1 for p in found)
    assert not any(p.kind == "composition" and p.relations[2] in p.relations[:2] for p in found)


def test_precision_and_recall():
    one, two, three = (Pattern("symmetry", (i,), 0.5) for i in range(3))
    compared = compare([one, two], [Pattern("symmetry", (1,), 0.9), three, Pattern("inverse", (0, 1))])
    assert compared["symmetry"] == Comparison(found=2, true=2, both=1)
    assert compared["symmetry"].as_dict() == {"found": 2, "true": 2, "both": 1, "precision": 0.5, "recall": 0.5}
    assert (compared["inverse"].precision, compared["inverse"].recall) == (None, 0)


def test_planted_graphs_hold_what_was_planted():
    planted = planted_patterns(0, rate=1.0, noise=0.0)
    found = patterns_in_triples(planted.graph)
    assert planted.patterns <= found
    assert {p.kind for p in planted.patterns} == set(KINDS)
    again = planted_patterns(0, rate=1.0, noise=0.0)
    assert torch.equal(again.graph.train, planted.graph.train)
    assert again.patterns == planted.patterns


@pytest.mark.slow
def test_the_detector_finds_what_was_planted():
    """Thresholds come from another planted graph (benchmarks/patterns.py)."""
    planted = planted_patterns(3, each=2, group=30, num_groups=4)
    recipe = from_values(
        {
            "model": {"dim": 32},
            "sampling": {"negatives": 128},
            "train": {"batch": 512, "steps": 1000, "lr": 0.02, "schedule": "linear", "validate_every": 1000},
        }
    )
    run = pairre.train(planted.graph, recipe, progress=False, device="cpu")
    found = search(paired_vectors(run.model), Overlaps.of(planted.graph))
    compared = compare((p for patterns in found.values() for p in patterns), planted.patterns)
    for kind in ("symmetry", "inverse", "composition"):
        assert (compared[kind].precision, compared[kind].recall) == (1, 1), kind
    subrelations = {frozenset(p.relations) for p in found["subrelation"]}  # so few features do not order them
    assert subrelations == {frozenset(p.relations) for p in planted.patterns if p.kind == "subrelation"}


def test_of_very_many_relations_the_most_frequent_are_searched(monkeypatch):
    random, frequency = np.random.default_rng(0), [9, 40, 8, 30, 20]
    ends = random.integers(12, size=(sum(frequency), 2))
    triples = torch.from_numpy(np.insert(ends, 1, np.repeat(np.arange(5), frequency), 1).astype(np.int32))
    names = [Vocabulary([str(i) for i in range(n)], kind) for n, kind in ((12, "entity"), (5, "relation"))]
    graph = Graph("drawn", *names, triples, triples[:0], triples[:0])
    kept = [1, 3, 4]
    alike = np.ones((5, 5), np.float32)  # relations whose vectors are all the same hold every pattern
    vectors = Vectors(alike, alike)
    everything = search_frequent(vectors, graph)
    assert {r for patterns in everything.values() for p in patterns for r in p.relations} == set(range(5))
    monkeypatch.setattr(import_module("pairre.analysis.patterns.search"), "MOST_SEARCHED", 3)
    found = search_frequent(vectors, graph)
    for kind in KINDS:
        assert set(found[kind]) == {p for p in everything[kind] if set(p.relations) <= set(kept)} != set()
