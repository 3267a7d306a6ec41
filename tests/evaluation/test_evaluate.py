"""Filtered ranks against a brute-force ranker, ties, NaN, bounded memory and breakdowns."""

import logging
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import planted_graph
from pairre.evaluation import evaluate, rank, rank_both_sides
from pairre.graph import Graph, Vocabulary
from pairre.graph.statistics import relation_categories
from pairre.models import PairRE
from pairre.runs import Run
from pairre.support.errors import GraphError


def make_run(graph, quick, seed=0):
    model = PairRE(graph.num_entities, graph.num_relations, 5)
    model.initialise(0.5, seed)
    return Run(graph, quick, model.requires_grad_(False))


def brute_force(model, graph, triples, side):
    """(higher, equal, candidates) of each triple, one Python comparison at a time."""
    known = {tuple(t) for s in ("train", "valid", "test") for t in graph.split(s).tolist()}
    found = []
    for h, r, t in triples.tolist():
        scores = model.score_all(torch.tensor([[h, r, t]]), side)[0].tolist()
        true = h if side == "head" else t
        higher = equal = 0
        candidates = 1
        for e, score in enumerate(scores):
            made = (e, r, t) if side == "head" else (h, r, e)
            if e == true or made in known:
                continue
            candidates += 1
            higher += score > scores[true]
            equal += score == scores[true]
        found.append((higher, equal, candidates))
    return found


def random_graph(seed, num_entities, num_relations, num_triples):
    random = np.random.default_rng(seed)
    sizes = (num_entities, num_relations, num_entities)
    triples = np.stack([random.integers(n, size=num_triples) for n in sizes], 1).astype(np.int32)
    parts = [torch.from_numpy(p.copy()) for p in np.array_split(triples, 3)]
    names = [Vocabulary([f"{k}{i}" for i in range(n)], k) for k, n in (("e", num_entities), ("r", num_relations))]
    return Graph("random", *names, *parts)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 4), st.integers(3, 60), st.booleans())
def test_ranks_equal_a_brute_force_ranker(seed, num_entities, num_relations, num_triples, tied):
    graph = random_graph(seed, num_entities, num_relations, num_triples)
    model = PairRE(num_entities, num_relations, 3)
    model.initialise(1.0, seed)
    if tied:  # many entities share a vector, so that ties occur
        with torch.no_grad():
            model.entity.copy_(model.entity[torch.arange(num_entities) % 3 % num_entities])
    model.requires_grad_(False)
    for side in ("head", "tail"):
        ranks = rank(model, graph.test, graph.known, side)
        got = list(zip(ranks.higher.tolist(), ranks.equal.tolist(), ranks.num_candidates.tolist(), strict=True))
        assert got == brute_force(model, graph, graph.test, side)


def test_chunks_of_entities_give_the_same_ranks(graph, quick, monkeypatch):
    model = make_run(graph, quick).model
    whole = rank_both_sides(model, graph.test, graph.known)
    monkeypatch.setattr(sys.modules[rank.__module__], "_MAX_QUERY_FEATURES", {"cpu": 1, "cuda": 1})
    chunks = PairRE.candidate_chunks

    def small(self, *arguments):
        for _, rows in chunks(self, *arguments):
            yield from ((start, rows[start : start + 7]) for start in range(0, len(rows), 7))

    monkeypatch.setattr(PairRE, "candidate_chunks", small)
    for side, ranks in rank_both_sides(model, graph.test, graph.known).items():
        assert torch.equal(ranks.higher, whole[side].higher)
        assert torch.equal(ranks.equal, whole[side].equal)


def test_a_constant_scorer_gets_the_middle(quick):
    graph = planted_graph(200)
    run = make_run(graph, quick)
    run.model.entity.fill_(1.0)
    result = evaluate(run)
    middle = (graph.num_entities + 1) / 2
    assert result["both"]["mr"] == pytest.approx(middle, rel=0.02)
    assert result["both"]["amri"] == pytest.approx(0, abs=1e-9)
    assert result["both"]["hits_at_10"] == 0
    assert result["ties"]["optimistic"]["mr"] == 1
    assert result["ties"]["pessimistic"]["mr"] == pytest.approx(graph.num_entities, rel=0.02)


def test_nan_ranks_last_and_is_said(graph, quick, caplog):
    run = make_run(graph, quick)
    h, _, t = graph.test[0].tolist()
    run.model.entity[h] = torch.nan
    with caplog.at_level(logging.WARNING, "pairre"):
        ranks = rank_both_sides(run.model, graph.test, graph.known)
    assert "NaN" in caplog.text
    for side in ("head", "tail"):
        assert ranks[side].values()[0] == ranks[side].num_candidates[0]
    elsewhere = ~((graph.test[:, 0] == h) | (graph.test[:, 2] == h) | (graph.test[:, 0] == t))
    assert (ranks["tail"].values()[elsewhere] < ranks["tail"].num_candidates[elsewhere]).any()


@pytest.mark.parametrize("by", ["relation", "category"])
def test_groups_add_up_to_the_whole(graph, quick, by):
    result = evaluate(make_run(graph, quick), by=by)
    groups = result[f"by_{by}"]
    assert sum(g["num_triples"] for g in groups.values()) == len(graph.test)
    mean = sum(g["num_triples"] * g["both"]["mrr"] for g in groups.values()) / len(graph.test)
    assert mean == pytest.approx(result["both"]["mrr"])
    names = set(relation_categories(graph)) if by == "category" else {"next", "previous", "beside"}
    assert set(groups) <= names


def test_both_is_the_mean_of_the_sides(graph, quick):
    result = evaluate(make_run(graph, quick), "valid")
    assert result["split"] == "valid"
    for name in ("mrr", "mr", "hits_at_1", "hits_at_3", "hits_at_10"):
        assert result["both"][name] == pytest.approx((result["head"][name] + result["tail"][name]) / 2)


def test_an_empty_split_is_refused(graph, quick):
    empty = Graph("g", graph.entities, graph.relations, graph.train, graph.valid[:0], graph.test)
    with pytest.raises(GraphError, match="valid split is empty"):
        evaluate(make_run(empty, quick), "valid")
