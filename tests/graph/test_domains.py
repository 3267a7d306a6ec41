"""Domains against their definition in plain Python, and what they say of a small world."""

from __future__ import annotations

import math
from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from pairre.graph import Graph, Vocabulary
from pairre.graph import domains as module
from pairre.graph.domains import Domains

NUM_ENTITIES, NUM_RELATIONS = 9, 3
triple = st.tuples(
    st.integers(0, NUM_ENTITIES - 1), st.integers(0, NUM_RELATIONS - 1), st.integers(0, NUM_ENTITIES - 1)
)


def graph_of(triples, types=None, num_entities=NUM_ENTITIES, num_relations=NUM_RELATIONS):
    entities = Vocabulary([f"e{i}" for i in range(num_entities)], "entity")
    relations = Vocabulary([f"r{i}" for i in range(num_relations)], "relation")
    train = torch.tensor(triples, dtype=torch.int32).reshape(-1, 3)
    return Graph("small", entities, relations, train, train[:0], train[:0], types=types or {})


def plausible_by_definition(triples, types, max_loss, relation, side):
    """Observed entities, and the unseen ones that are as similar as a member that is allowed to be lost least."""
    counts = Counter((r, s, e) for h, r, t in set(triples) for s, e in (("head", h), ("tail", t)))
    features = {e: {(r, s) for r, s, other in counts if other == e} for e in range(NUM_ENTITIES)}
    for e in range(NUM_ENTITIES):
        features[e] |= {max(((start, name) for name, start in types.items() if start <= e), default=())} - {()}
    frequency = Counter(f for filled in features.values() for f in filled)
    weight = {f: math.log(NUM_ENTITIES / n) for f, n in frequency.items()}
    slot = (relation, side)
    members = {e: n for (r, s, e), n in counts.items() if (r, s) == slot}

    def similarity(entity):
        own = features[entity] - {slot}
        shared = Counter(f for m in members if m != entity for f in features[m])
        norm = math.sqrt(sum(weight[f] for f in own))
        return sum(shared[f] * weight[f] for f in own) / norm if norm > 1e-9 else math.inf

    once = sorted(similarity(e) for e, n in members.items() if n == 1)
    lost = int(max_loss * sum(members.values()))
    if not members:
        return set(range(NUM_ENTITIES))
    unseen = set(range(NUM_ENTITIES)) - set(members)
    return set(members) | {e for e in unseen if lost < len(once) and similarity(e) >= once[lost] - 1e-9}


@given(st.lists(triple, max_size=25), st.sampled_from([0.0, 0.01, 0.3]), st.sampled_from([{}, {"a": 0, "b": 4}]))
def test_what_is_plausible_is_what_the_definition_says(triples, max_loss, types):
    domains = Domains(graph_of(triples, types), max_loss)
    for relation in range(NUM_RELATIONS):
        assert domains.has_loops(relation) == any(h == t for h, r, t in triples if r == relation)
        for column, side in ((0, "head"), (2, "tail")):
            assert domains.observed(relation, side).tolist() == sorted({x[column] for x in triples if x[1] == relation})
            expected = plausible_by_definition(triples, types, max_loss, relation, side)
            assert domains.plausible(relation, side).tolist() == sorted(expected)
            shuffled = torch.randperm(NUM_ENTITIES)
            assert set(shuffled[domains.allows(relation, side, shuffled)].tolist()) == expected


def test_a_closed_range_takes_no_new_entity_and_an_open_one_takes_those_that_are_like_its_members():
    countries, capitals, currencies = range(5), range(5, 10), (10, 11)
    town, untold = 12, 13  # a town that is no capital, and an entity of which train says nothing
    located = [(city, 0, country) for city, country in zip(capitals, countries, strict=True)] + [(town, 0, 0)]
    capital_of = [(city, 1, country) for city, country in zip(capitals, countries, strict=True)]
    pays_with = [(country, 2, currencies[country % 2]) for country in countries]
    graph = graph_of(located + capital_of + pays_with, num_entities=14)
    assert graph.domains.plausible(1, "head").tolist() == [*capitals, town, untold]
    assert graph.domains.plausible(2, "tail").tolist() == [*currencies]
    assert graph.domains.observed(1, "head").tolist() == [*capitals]


def test_what_is_kept_for_the_next_call_is_bounded(monkeypatch):
    monkeypatch.setattr("pairre.graph.domains._MAX_KEPT", 12)
    domains = Domains(graph_of([(e, r, (e + r) % NUM_ENTITIES) for e in range(8) for r in range(NUM_RELATIONS)]))
    first = [domains.plausible(r, "tail").tolist() for r in range(NUM_RELATIONS)]
    assert first == [domains.plausible(r, "tail").tolist() for r in range(NUM_RELATIONS)]
    assert sum(map(len, domains._plausible.found.values())) <= 12
    assert sum(2 * len(profile.features) for profile in domains._profiles.found.values()) <= 12


def test_what_is_asked_of_one_slot_costs_what_its_members_have_to_do_with(monkeypatch):
    """Without that, the end of a training took minutes on 100,000 relations, each of which looked at all entities."""
    num_groups, size, num_relations = 100, 20, 1000
    draw = torch.Generator().manual_seed(0)
    relation = torch.arange(num_relations).repeat_interleave(6)
    ends = torch.randint(size, (len(relation), 2), generator=draw) + (relation % num_groups * size)[:, None]
    graph = graph_of(torch.stack([ends[:, 0], relation, ends[:, 1]], 1).tolist(), {}, num_groups * size, num_relations)
    domains, work = Domains(graph), []

    def counting(*arguments):
        row, values = runs(*arguments)
        work.append(len(values))
        return row, values

    runs = module._runs
    monkeypatch.setattr(module, "_runs", counting)
    found = [domains.plausible(r, side) for r in range(num_relations) for side in ("head", "tail")]
    assert sum(work) < 5_000 * len(found)  # all entities of one slot have 12,000 features
    every, sizes = torch.arange(graph.num_entities), {len(ids) for ids in found}
    assert len(sizes) > 10  # of many shapes: some slots take new entities, others none
    for number in range(0, len(found), 50):
        allowed = domains.allows(number // 2, ("head", "tail")[number % 2], every)
        assert found[number].tolist() == allowed.nonzero()[:, 0].tolist()
