"""Scores of given triples against ranks from a full table of scores."""

from __future__ import annotations

from dataclasses import asdict

import pyarrow.parquet as pq
import pytest
import torch

from pairre.graph.lookup import find_triples
from pairre.inference.score import TripleScore, score, write_scores
from pairre.models import PairRE
from pairre.runs import Run
from pairre.support.errors import PairREError


@pytest.fixture
def run(graph, quick):
    model = PairRE(graph.num_entities, graph.num_relations, 5)
    model.initialise(0.5, 0)
    return Run(graph, quick, model.requires_grad_(False))


@pytest.fixture
def rows(run):
    known = [next(run.graph.names(run.graph.split(s)[:1])) for s in ("train", "valid", "test")]
    return [*known, ("e1", "next", "e30"), ("e5", "beside", "e5")]


def test_scores_and_ranks_are_those_of_the_whole_table(run, rows):
    graph = run.graph
    every = {t for s in ("train", "valid", "test") for t in graph.names(graph.split(s))}
    found = score(run, rows)
    assert [(s.head, s.relation, s.tail) for s in found] == rows
    assert [s.known for s in found] == ["train", "valid", "test", None, None]
    for s in found:
        ids = torch.tensor([[graph.entities.id(s.head), graph.relations.id(s.relation), graph.entities.id(s.tail)]])
        table = run.model.score_all(ids, "tail")[0].tolist()
        names = graph.entities.name_list(range(graph.num_entities))
        others = [n for n in names if n == s.tail or (s.head, s.relation, n) not in every]
        own = table[names.index(s.tail)]
        above = sum(table[names.index(n)] > own for n in others)
        assert s.score == pytest.approx(own, abs=1e-5)
        assert s.tail_rank == 1 + above
        assert s.tail_percentile == pytest.approx(100 * (len(others) - 1 - above) / (len(others) - 1))
        assert s.head_rank is not None
        assert s.head_percentile is not None


def test_sides_are_left_out_on_request(run, rows):
    for side, kept in (("tail", {"tail_rank", "tail_percentile"}), ("none", set())):
        for s in score(run, rows, side=side):
            ranks = {k for k, v in asdict(s).items() if k.endswith(("rank", "percentile")) and v is not None}
            assert ranks == kept


def test_an_unknown_side_is_refused(run, rows):
    with pytest.raises(PairREError, match="side: 'tails' is not one of both, head, tail, none; did you mean 'tail'"):
        score(run, rows, side="tails")


def test_a_file_of_scores_is_the_list(run, rows, tmp_path):
    source, out = tmp_path / "claims.tsv", tmp_path / "scores.parquet"
    source.write_text("".join("\t".join(row) + "\n" for row in [*rows, ("nobody", "next", "e1")]))
    with pytest.raises(PairREError, match=r"claims.tsv: row 6: no entity named 'nobody'"):
        score(run, source)
    found = find_triples(run.graph, source, skip_unknown=True)
    assert found.num_unknown == 1
    write_scores(run, found, out)
    assert [TripleScore(**row) for row in pq.read_table(out).to_pylist()] == score(run, source, skip_unknown=True)


def test_nothing_to_score_and_weights_that_diverged(run, rows):
    assert score(run, [("nobody", "next", "e1")], skip_unknown=True) == []
    run.model.entity[run.graph.entities.id("e30")] = torch.nan
    with pytest.raises(PairREError, match="not finite"):
        score(run, rows)
