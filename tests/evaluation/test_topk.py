"""The best candidates of many queries against a sort of all scores, for every way of leaving candidates out."""

from __future__ import annotations

import pytest
import torch

from pairre.evaluation import topk
from pairre.evaluation.topk import best_entities, best_relations
from pairre.graph.index import COLUMN
from pairre.models import model_class


@pytest.fixture(params=["pairre", "transr", "distmult"])
def model(request, graph):
    made = model_class(request.param)(graph.num_entities, graph.num_relations, 5)
    made.attach(graph, 0.5, 0)
    made.initialise(0.5, 0)
    return made.requires_grad_(False)


def known_members(graph, query, side):
    column = COLUMN[side]
    rest = [i for i in range(3) if i != column]
    every = torch.cat([graph.train, graph.valid, graph.test]).tolist()
    return {row[column] for row in every if all(row[i] == query[i] for i in rest)}


@pytest.mark.parametrize("side", ["head", "tail"])
@pytest.mark.parametrize(("filtered", "without_own"), [(False, False), (True, True)])
@pytest.mark.parametrize("some", [False, True])
def test_entities_are_those_of_a_full_sort(graph, model, side, filtered, without_own, some, monkeypatch):
    monkeypatch.setattr(topk, "_MAX_QUERIES", {"cpu": 7, "cuda": 7})
    monkeypatch.setattr(topk, "_MAX_SCORES", {"cpu": 60, "cuda": 60})
    queries, k = graph.train[:20].long(), 6
    candidates = torch.arange(1, graph.num_entities, 3) if some else None
    told = []
    best = best_entities(
        *(model, queries, side, k),
        candidates=candidates,
        known=graph.known if filtered else None,
        without_own=without_own,
        progress=told.append,
    )
    assert sum(told) == len(queries)
    scores = model.score_all(queries, side)
    for row, query in enumerate(queries.tolist()):
        left = set(range(graph.num_entities) if candidates is None else candidates.tolist())
        left -= known_members(graph, query, side) if filtered else set()
        left -= {query[2 - COLUMN[side]]} if without_own else set()
        order = sorted(left, key=lambda entity: (-scores[row, entity].item(), entity))[:k]
        assert best.ids[row].tolist() == order + [-1] * (k - len(order))
        assert best.scores[row, : len(order)].tolist() == pytest.approx(scores[row, order].tolist(), abs=1e-5)


def test_fewer_candidates_than_asked_for(graph, model):
    best = best_entities(model, graph.train[:3], "tail", 100, candidates=torch.tensor([2, 5]))
    assert best.ids.sort(1).values.tolist() == [[2, 5]] * 3
    none = best_entities(model, graph.train[:3], "tail", 2, candidates=torch.empty(0, dtype=torch.int64))
    assert none.ids.shape == (3, 0)


def test_relations_are_those_of_a_full_sort(graph, model, monkeypatch):
    monkeypatch.setattr(topk, "_MAX_SCORES", {"cpu": 9, "cuda": 9})
    queries = graph.train[:12].long()
    allowed = torch.rand(12, graph.num_relations, generator=torch.Generator().manual_seed(0)) < 0.7
    best = best_relations(model, queries, 2, allowed=allowed, known=graph.known)
    scores = model.score_relations(queries[:, 0], queries[:, 2])
    for row, query in enumerate(queries.tolist()):
        left = set(allowed[row].nonzero()[:, 0].tolist()) - known_members(graph, query, "relation")
        order = sorted(left, key=lambda relation: -scores[row, relation].item())[:2]
        assert best.ids[row].tolist() == order + [-1] * (2 - len(order))


def test_of_equal_scores_the_first_candidate_wins_in_any_chunk(graph, model, monkeypatch):
    model.entity.zero_()
    for scores_at_once in (1, 1 << 20):
        monkeypatch.setattr(topk, "_MAX_SCORES", {"cpu": scores_at_once, "cuda": scores_at_once})
        assert best_entities(model, graph.train[:1], "tail", 40).ids.tolist() == [list(range(40))]


@pytest.mark.parametrize("k", [1, 10, 39])
def test_of_more_equal_scores_than_are_asked_for_the_first_candidates_win(graph, model, k):
    model.entity.copy_(model.entity[torch.arange(40) % 3])  # topk alone takes any of those that tie
    queries = graph.train[:4].long()
    best = best_entities(model, queries, "tail", k)
    for row, found in zip(model.score_all(queries, "tail"), best.ids, strict=True):
        assert found.tolist() == sorted(range(40), key=lambda entity: (-row[entity].item(), entity))[:k]


def test_a_score_that_is_not_finite_is_counted_unless_it_is_left_out(graph, model):
    query = graph.train[:1]
    lost = int(query[0, 2])
    model.entity[lost] = torch.nan
    every = best_entities(model, query, "tail", graph.num_entities)
    assert every.num_lost == 1
    assert every.ids[0].sort().values.tolist() == sorted({-1, *range(graph.num_entities)} - {lost})
    assert best_entities(model, query, "tail", 3, known=graph.known).num_lost == 0


def test_of_equal_scores_the_smallest_ids_win(graph, model):
    for source in model.sources():
        source.write(torch.arange(source.num_rows), torch.ones(source.num_rows, source.width))
    best = best_entities(model, graph.train[:3], "tail", 4)
    assert best.ids.tolist() == [[0, 1, 2, 3]] * 3
    model.stored["entity"].write(torch.tensor([7]), torch.linspace(-1, 1, model.stored["entity"].width)[None])
    scores = model.score_all(graph.train[:1], "tail")[0]
    expected = sorted(range(len(scores)), key=lambda entity: (-scores[entity].item(), entity))[:4]
    assert best_entities(model, graph.train[:1], "tail", 4).ids[0].tolist() == expected
    assert best_relations(model, graph.train[:2], 2).ids.tolist() == [[0, 1]] * 2
