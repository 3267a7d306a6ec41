"""Rules that name entities: counts of a graph made by hand, and the same answers as slow Python gives everywhere."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict

import numba
import numpy as np
import pytest
import torch

from pairre.graph import Graph, Vocabulary
from pairre.rules import evidence
from pairre.rules.entity_rules import EntityRuleBook
from tests.conftest import planted_graph

PEOPLE = [f"p{i}" for i in range(8)]


def made_of(facts, valid=()):
    """A graph of named triples."""
    names = sorted({name for h, _, t in (*facts, *valid) for name in (h, t)})
    relations = sorted({r for _, r, _ in (*facts, *valid)})
    ids = {name: i for i, name in enumerate(names)}
    splits = [[[ids[h], relations.index(r), ids[t]] for h, r, t in part] for part in (facts, valid, ())]
    tensors = [torch.tensor(part, dtype=torch.int32).reshape(-1, 3) for part in splits]
    return Graph("hand", Vocabulary(names, "entity"), Vocabulary(relations, "relation"), *tensors)


def asked(graph, *queries, most=1024):
    """Answers to queries (side, anchor, relation) by name, one by one."""
    book, found = EntityRuleBook(graph), []
    for side, anchor, relation in queries:
        ids = np.array([graph.relations.id(relation)]), np.array([graph.entities.id(anchor)])
        [(entities, scores)] = book.answers(*ids, side, most)
        found.append({graph.entities[e]: s for e, s in zip(entities.tolist(), scores.tolist(), strict=True)})
    return found


def score(*confidences):
    return math.sqrt(-sum(math.log1p(-c) for c in confidences))


def by_hand(graph, side, anchor, relation):
    """Every rule for a query, as the module's docstring defines them, with sets."""
    num = graph.num_relations
    facts = {(h, r, t) for h, r, t in graph.train.tolist()}
    facts |= {(t, r + num, h) for h, r, t in facts}
    q = relation + num * (side == "head")
    having = defaultdict(set)
    for e, r, o in facts:
        having[r, o].add(e)
        having[r].add(e)
    slots = defaultdict(set)
    for slot, entities in having.items():
        for e in entities:
            slots[e].add(slot)
    confidences = defaultdict(list)
    for slot in slots[anchor]:
        votes = Counter(o for e, r, o in facts if r == q and e in having[slot])
        for answer, votes_for in votes.items():
            if votes_for >= 2:
                confidences[answer].append(votes_for / (len(having[slot]) + 5))
    goal = (q + num) % (2 * num), anchor
    for slot, support in Counter(s for e in having[goal] for s in slots[e]).items():
        if support >= 2 and slot != goal:
            for e in having[slot]:
                confidences[e].append(support / (len(having[slot]) + 5))
    kept = {a: sorted((c for c in of if c >= 0.005), reverse=True)[:3] for a, of in confidences.items()}
    return {a: score(*of) for a, of in kept.items() if of}


def random_graph(num_entities, num_relations, num_facts, seed):
    random = np.random.default_rng(seed)
    # A few entities are in most facts, as in real graphs; some entities have none.
    ends = np.minimum(random.geometric(3 / num_entities, (num_facts, 2)) - 1, num_entities - 3)
    triples = np.stack([ends[:, 0], random.integers(num_relations, size=num_facts), ends[:, 1]], 1)
    entities = Vocabulary([f"e{i}" for i in range(num_entities)], "entity")
    relations = Vocabulary([f"r{i}" for i in range(num_relations)], "relation")
    train = torch.from_numpy(triples.astype(np.int32))
    return Graph("random", entities, relations, train, train[:0], train[:0])


def test_who_was_born_in_paris_is_a_citizen_of_france():
    facts = [(p, "born", "Paris") for p in PEOPLE[:6]]
    facts += [(p, "citizen", "France") for p in PEOPLE[:4]] + [(PEOPLE[4], "citizen", "Spain")]
    graph = made_of(facts)
    [found] = asked(graph, ("tail", "p5", "citizen"))
    # 4 of 6 born in Paris, and as many of those born anywhere; Spain has a single citizen.
    assert found == pytest.approx({"France": score(4 / 11, 4 / 11)})
    [found] = asked(graph, ("head", "France", "citizen"))
    # Citizens share that they were born in Paris, were born, and are citizens, which one other is, too.
    expected = dict.fromkeys(PEOPLE[:4], score(4 / 11, 4 / 11, 4 / 10))
    assert found == pytest.approx(expected | {"p4": score(4 / 11, 4 / 11, 4 / 10), "p5": score(4 / 11, 4 / 11)})


@pytest.mark.parametrize("graph", [planted_graph(), random_graph(30, 3, 200, 0), random_graph(60, 5, 300, 1)], ids=str)
def test_answers_are_those_of_slow_python(graph):
    book = EntityRuleBook(graph)
    pairs = np.array(list(itertools.product(range(graph.num_relations), range(graph.num_entities))))
    nonzero = 0
    for side in ("head", "tail"):
        for (relation, anchor), (entities, scores) in zip(pairs, book.answers(*pairs.T, side, 1024), strict=True):
            expected = by_hand(graph, side, int(anchor), int(relation))
            assert dict(zip(entities.tolist(), scores.tolist(), strict=True)) == pytest.approx(expected, rel=1e-5)
            nonzero += bool(expected)
    assert nonzero > len(pairs) / 2


def test_only_train_is_looked_at():
    facts = [(p, "born", "Paris") for p in PEOPLE] + [(PEOPLE[0], "citizen", "France")]
    held_out = [(p, "citizen", "France") for p in PEOPLE[1:]]
    assert asked(made_of(facts, held_out), ("tail", "p5", "citizen"), ("head", "France", "citizen")) == [{}, {}]


def test_nothing_is_concluded_where_there_is_nothing():
    graph = made_of([("a", "r", "b")], [("c", "s", "d")])
    assert asked(graph, ("tail", "a", "r"), ("tail", "c", "s"), ("head", "d", "r"), ("tail", "a", "s")) == [{}] * 4
    empty = made_of([], [("a", "r", "b")])
    assert asked(empty, ("tail", "a", "r"), ("head", "b", "r")) == [{}, {}]
    assert EntityRuleBook(empty).answers(np.array([], int), np.array([], int), "tail", 4) == []


def test_repeated_triples_count_once():
    facts = [(p, "born", "Paris") for p in PEOPLE] + [(p, "citizen", "France") for p in PEOPLE[:3]]
    query = "tail", "p5", "citizen"
    assert asked(made_of(facts + facts), query) == asked(made_of(facts), query)


def test_of_equal_answers_the_smallest_ids_stay():
    facts = [(p, "born", "Paris") for p in PEOPLE] + [(p, "citizen", f"land{i}") for p in PEOPLE[:3] for i in range(9)]
    facts += [(p, "citizen", "land8") for p in PEOPLE[3:5]]
    graph = made_of(facts)
    [found] = asked(graph, ("tail", "p7", "citizen"), most=4)
    assert set(found) == {"land8", "land0", "land1", "land2"}
    [every] = asked(graph, ("tail", "p7", "citizen"))
    assert found == {name: every[name] for name in found}
    assert len(every) == 9


def test_neither_the_order_nor_the_number_of_queries_or_threads_matters(monkeypatch):
    graph = random_graph(60, 5, 400, 2)
    random = np.random.default_rng(0)
    relations, anchors = random.integers(5, size=200), random.integers(60, size=200)

    def everything(book, order=slice(None)):
        return [
            sorted(zip(*map(list, found), strict=True))
            for found in book.answers(relations[order], anchors[order], "tail", 9)
        ]

    expected, book = everything(EntityRuleBook(graph)), EntityRuleBook(graph)
    order = random.permutation(200)
    assert everything(book, order) == [expected[i] for i in order]
    assert [everything(book, [i])[0] for i in range(20)] == expected[:20]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert everything(book) == expected
    finally:
        torch.set_num_threads(threads)


def without_compiler(monkeypatch, **limits):
    """The kernels as plain Python, so that limits can be other ones."""
    for name, value in limits.items():
        monkeypatch.setattr(evidence, name, value)
    for name, value in list(vars(evidence).items()):
        if isinstance(value, numba.core.registry.CPUDispatcher):
            monkeypatch.setattr(evidence, name, value.py_func)


def test_conclusions_that_do_not_fit_are_found_again(monkeypatch):
    graph = random_graph(30, 3, 150, 3)
    relations, anchors = (ids.ravel() for ids in np.meshgrid(np.arange(3), np.arange(30)))
    expected = [
        dict(zip(*map(list, found), strict=True))
        for found in EntityRuleBook(graph).answers(relations, anchors, "head", 99)
    ]
    without_compiler(monkeypatch, _MEMO=30)
    monkeypatch.setattr(evidence.Scratch, "empty", lambda e, s, empty=evidence.Scratch.empty: small(empty(e, s)))
    found = [
        dict(zip(*map(list, found), strict=True))
        for found in EntityRuleBook(graph).answers(relations, anchors, "head", 99)
    ]
    assert all(one == pytest.approx(other, rel=1e-6) for one, other in zip(found, expected, strict=True))


def small(scratch):
    return scratch._replace(entity=scratch.entity[:30].copy(), confidence=scratch.confidence[:30].copy())


def test_of_a_large_slot_evenly_spread_entities_vote(monkeypatch):
    """Half of 400 people born in Paris are citizens of France, in any order of ids."""
    people = [f"p{i:03}" for i in range(400)]
    facts = [(p, "born", "Paris") for p in people] + [
        (p, "citizen", f"land{i // 200}") for i, p in enumerate(people[:-1])
    ]
    without_compiler(monkeypatch, _MAX_VISITS=50, _MAX_SHARED=50)
    [votes, again] = asked(made_of(facts), *[("tail", "p399", "citizen")] * 2)
    assert votes == again
    for land in ("land0", "land1"):
        confidence = 1 - math.exp(-(votes[land] ** 2) / 2)  # two slots: born in Paris, and anywhere; then r with anyone
        assert 0.3 < confidence < 0.6
    [citizens] = asked(made_of(facts), ("head", "land1", "citizen"))
    assert citizens["p399"] == pytest.approx(score(199 / 405, 199 / 405), rel=0.2)


def test_a_stride_visits_everything_once():
    for num in (1, 2, 5, 6, 7, 12, 100, 1024, 1597):
        step = evidence._stride(num)
        assert sorted(i * step % num for i in range(num)) == list(range(num))
        if num > 20:
            first = sorted(i * step % num for i in range(num // 4))
            assert max(np.diff([*first, first[0] + num])) <= 16


@pytest.mark.parametrize("graph", [planted_graph(), random_graph(30, 3, 200, 0)], ids=str)
def test_rules_that_fire_are_those_that_answers_rest_on(graph):
    book, num = EntityRuleBook(graph), 0
    known = {tuple(triple) for triple in graph.train.tolist()}
    for head, relation, tail in itertools.product(range(0, 30, 3), range(3), range(0, 30, 2)):
        fired = book.firing(head, relation, tail)
        if (head, relation, tail) in known:
            facts = graph.train[(graph.train != torch.tensor([head, relation, tail])).any(1)]
            other = Graph(graph.name, graph.entities, graph.relations, facts, facts[:0], facts[:0])
            votes = [(*rule[:4], rule.size) for rule in EntityRuleBook(other).firing(head, relation, tail)]
            # The fact itself is no evidence, but its ends are among those that have their slots.
            assert [rule[:4] for rule in sorted(votes)] == [rule[:4] for rule in sorted(fired)]
            continue
        expected = by_hand(graph, "tail", head, relation).get(tail, 0)
        assert score(*[rule.confidence for rule in fired[:3]]) == pytest.approx(expected)
        num += expected > 0
    assert num > 20


def test_a_rule_that_fires_has_its_counts():
    facts = [(p, "born", "Paris") for p in PEOPLE[:6]] + [(p, "citizen", "France") for p in PEOPLE[:4]]
    graph = made_of(facts)
    ids = graph.entities.id("p5"), graph.relations.id("citizen"), graph.entities.id("France")
    first = EntityRuleBook(graph).firing(*ids)[0]
    assert first == (ids[0], graph.relations.id("born"), graph.entities.id("Paris"), 4, 6, pytest.approx(4 / 11))
