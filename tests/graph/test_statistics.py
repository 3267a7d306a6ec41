"""Counts on graphs small enough to count by hand, and on the public ones as their publishers describe them."""

from __future__ import annotations

import json

import pytest
import torch

from pairre.graph import Graph, Vocabulary, load_graph
from pairre.graph.statistics import graph_statistics, relation_categories, relation_means


def graph_of(train, valid=(), test=(), num_entities=6, relations=("r", "s")):
    splits = (torch.tensor(list(rows), dtype=torch.int32).reshape(-1, 3) for rows in (train, valid, test))
    return Graph(
        "hand",
        Vocabulary([f"e{i}" for i in range(num_entities)], "entity"),
        Vocabulary(relations, "relation"),
        *splits,
    )


def test_repetitions_overlaps_and_unseen_names():
    graph = graph_of(
        train=[(0, 0, 1), (0, 0, 1), (0, 0, 1), (1, 0, 2), (2, 0, 3)],
        valid=[(1, 0, 2), (1, 0, 2), (4, 0, 0)],
        test=[(0, 0, 1), (2, 0, 3), (4, 0, 0), (4, 1, 5), (5, 1, 5)],
    )
    found = graph_statistics(graph)
    assert (found.name, found.num_entities, found.num_relations) == ("hand", 6, 2)
    assert found.num_triples == {"train": 5, "valid": 3, "test": 5}
    assert found.num_duplicates == {"train": 2, "valid": 1, "test": 0}
    assert found.num_shared == {"train-valid": 1, "train-test": 2, "valid-test": 1}
    assert found.num_unseen_entities == {"valid": 1, "test": 2}
    assert found.num_unseen_relations == {"valid": 0, "test": 1}
    assert json.loads(json.dumps(found.as_dict()))["relations"][0]["num_triples"] == 3


@pytest.mark.parametrize(
    ("train", "category", "tails_per_head", "heads_per_tail"),
    [
        ([(0, 0, 1), (2, 0, 3)], "1-1", 1, 1),
        ([(0, 0, 1), (0, 0, 2), (3, 0, 4)], "1-N", 1.5, 1),  # exactly 1.5 counts as many
        ([(1, 0, 0), (2, 0, 0), (4, 0, 3)], "N-1", 1, 1.5),
        ([(0, 0, 2), (0, 0, 3), (1, 0, 2), (1, 0, 3)], "N-N", 2, 2),
        ([(0, 0, 1), (0, 0, 2), (3, 0, 4), (4, 0, 5)], "1-1", 4 / 3, 1),
        ([(0, 0, 1), (0, 0, 1), (0, 0, 1)], "1-1", 1, 1),  # repetitions are no second tail
    ],
)
def test_categories(train, category, tails_per_head, heads_per_tail):
    graph = graph_of(train, relations=("r",))
    assert relation_categories(graph) == [category]
    relation = graph_statistics(graph).relations[0]
    assert (relation.tails_per_head, relation.heads_per_tail) == (tails_per_head, heads_per_tail)
    assert relation.num_triples == len(set(train))
    assert relation.category == category


def test_categories_add_up_and_relations_come_largest_first():
    graph = graph_of([(0, 0, 1), (0, 1, 1), (0, 1, 2), (0, 2, 1), (0, 2, 2), (0, 2, 3)], relations=("a", "b", "c", "d"))
    found = graph_statistics(graph)
    assert [(r.name, r.num_triples, r.category) for r in found.relations] == [
        ("c", 3, "1-N"),
        ("b", 2, "1-N"),
        ("a", 1, "1-1"),
        ("d", 0, "1-1"),
    ]
    assert found.categories == {
        "1-1": {"relations": 2, "triples": 1},
        "1-N": {"relations": 2, "triples": 5},
        "N-1": {"relations": 0, "triples": 0},
        "N-N": {"relations": 0, "triples": 0},
    }
    num, tails, heads = relation_means(graph)
    assert num.tolist() == [1, 2, 3, 0]
    assert tails.tolist() == [1, 2, 3, 0]
    assert heads.tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("name", "entities", "relations", "triples"),
    [
        ("wn18rr", 40_943, 11, (86_835, 3_034, 3_134)),
        ("sports", 1_039, 4, (1_312, 0, 307)),
        ("location", 445, 5, (384, 0, 100)),
        ("umls", 135, 46, (5_216, 652, 661)),
        ("countries-s1", 271, 2, (1_111, 24, 24)),
        ("dbpedia-music", 32_510, 7, (289_825, 5_000, 5_000)),
    ],
)
def test_sizes_of_public_graphs(public, name, entities, relations, triples):
    found = graph_statistics(load_graph(public / name))
    assert (found.num_entities, found.num_relations) == (entities, relations)
    assert tuple(found.num_triples.values()) == triples


def never_in_train(graph):
    return graph.num_entities - len(torch.unique(graph.train[:, [0, 2]]))


def test_faults_of_sports(public):
    graph = load_graph(public / "sports")
    found = graph_statistics(graph)
    assert found.num_duplicates == {"train": 58, "valid": 0, "test": 2}
    assert found.num_shared["train-test"] == 22
    assert found.num_unseen_entities["test"] == never_in_train(graph) == 57


def test_faults_of_wn18rr(public):
    graph = load_graph(public / "wn18rr")
    assert graph_statistics(graph).num_unseen_entities["test"] == 209
    assert never_in_train(graph) == 384


def test_faults_of_dbpedia_music(public):
    found = graph_statistics(load_graph(public / "dbpedia-music"))
    assert found.num_duplicates["train"] == 1_238
    assert sum(found.num_shared.values()) == 80
