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
from pairre.models import PairRE, models
from pairre.runs import Run
from pairre.support.errors import GraphError, PairREError

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]


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


def ring(num_entities):
    """A graph in which every entity has the same neighbourhood: each is followed by the next one."""
    one = torch.arange(num_entities, dtype=torch.int32)
    train = torch.stack([one, torch.zeros_like(one), (one + 1) % num_entities], 1)
    test = torch.stack([one, 1 + one % 3, (7 * one + 2) % num_entities], 1)
    names = [Vocabulary([f"{k}{i}" for i in range(n)], k) for k, n in (("e", num_entities), ("r", 4))]
    return Graph("ring", *names, train, test[:0], test)


@pytest.mark.parametrize("model_type", models(), ids=lambda m: m.name)
@pytest.mark.parametrize(("num_entities", "dim"), [(13, 6), (37, 9), (37, 12), (135, 16)])
@pytest.mark.parametrize("device", DEVICES)
def test_equal_entities_tie_in_every_model(model_type, num_entities, dim, device):
    """Also where rows are multiplied with matrices, which libraries do in an order that depends on the shape."""
    graph = ring(num_entities)
    with torch.device(device):
        model = model_type(num_entities, graph.num_relations, dim)
    model.initialise(0.5, 0)
    model.init_from_graph(graph, 0)
    model.attach(graph, 0.5, 0)
    model.requires_grad_(False)
    model.entity.copy_(model.entity[:1].clone().expand_as(model.entity))
    fixed = torch.arange(num_entities, dtype=torch.int32).expand(num_entities, -1)
    for candidates in (None, {"head": fixed[:, : num_entities - 2], "tail": fixed[:, 2:]}):
        for ranks in rank_both_sides(model, graph.test, graph.known, fixed_candidates=candidates).values():
            assert not ranks.higher.any()
            assert torch.equal(ranks.equal + 1, ranks.num_candidates)


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


@pytest.mark.parametrize("id", [-1, 1_000_000])
def test_candidates_without_a_name_are_refused(graph, quick, id):
    damaged = {side: torch.full((len(graph.test), 2), id, dtype=torch.int32) for side in ("head", "tail")}
    with pytest.raises(GraphError, match="an id without a name"):
        rank_both_sides(make_run(graph, quick).model, graph.test, graph.known, fixed_candidates=damaged)


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


@pytest.mark.parametrize(
    ("option", "value"), [("by", "relations"), ("by", "x"), ("split", "tests"), ("split", "known")]
)
def test_unknown_values_are_refused(graph, quick, option, value):
    with pytest.raises(PairREError, match=f"{option} '{value}': unknown"):
        evaluate(make_run(graph, quick), **{option: value})


# --- triples of one's own, and plausible candidates only ---


def test_own_triples_are_ranked_with_the_other_ones_left_out(graph, quick):
    run = make_run(graph, quick)
    names = list(graph.names(graph.test))
    assert evaluate(run, triples=names)["both"] == evaluate(run)["both"]
    new = [("e1", "next", "e30"), ("e1", "next", "e31")]
    ids = torch.tensor([[graph.entities.id(h), graph.relations.id(r), graph.entities.id(t)] for h, r, t in new])
    with_new = Graph(
        "ring", graph.entities, graph.relations, graph.train, graph.valid, torch.cat([graph.test, ids.int()])
    )
    found = evaluate(run, by="relation", triples=new)
    for side in ("head", "tail"):
        ranks = [higher + 1 + equal / 2 for higher, equal, _ in brute_force(run.model, with_new, ids, side)]
        assert found[side]["mr"] == pytest.approx(sum(ranks) / 2)
    assert found["num_triples"] == 2
    assert set(found["by_relation"]) == {"next"}
    with pytest.raises(GraphError, match="no triple has only known names"):
        evaluate(run, triples=[("who", "next", "e1")], skip_unknown=True)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 20), st.integers(1, 4), st.integers(3, 60))
def test_ranks_among_plausible_entities_equal_a_brute_force_ranker(seed, num_entities, num_relations, num_triples):
    graph = random_graph(seed, num_entities, num_relations, num_triples)
    model = PairRE(num_entities, num_relations, 3)
    model.initialise(1.0, seed)
    result = evaluate(Run(graph, None, model.requires_grad_(False)), plausible=True)["plausible"]
    known = {tuple(t) for s in ("train", "valid", "test") for t in graph.split(s).tolist()}
    for side, column in (("head", 0), ("tail", 2)):
        reciprocals, lost = [], 0
        for triple in graph.test.tolist():
            relation, own, true = triple[1], triple[2 - column], triple[column]
            plausible = set(graph.domains.plausible(relation, side).tolist())
            plausible -= set() if graph.domains.has_loops(relation) else {own}
            scores = model.score_all(torch.tensor([triple]), side)[0].tolist()
            made = {e: (*triple[:column], e, *triple[column + 1 :]) for e in plausible}
            others = [e for e in plausible if e != true and made[e] not in known]
            above, equal = (sum(op(scores[e], scores[true]) for e in others) for op in (float.__gt__, float.__eq__))
            lost += true not in plausible
            reciprocals.append(1 / (1 + above + equal / 2) if true in plausible else 1 / num_entities)
        assert result["num_lost"][side] == lost
        assert result[side]["mrr"] == pytest.approx(sum(reciprocals) / len(reciprocals))
