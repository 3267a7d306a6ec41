"""Metrics: their values for known ranks, their intervals, and that one declaration is all that a new one needs."""

import numpy as np
import pytest
import torch

from pairre.analysis.report.collect import collect
from pairre.cli.tables import evaluation_tables, metrics_table
from pairre.evaluation import (
    BREAKDOWN_METRICS,
    METRICS,
    Ranks,
    bootstrap,
    evaluate,
    metric,
    metric_rows,
    summarise,
)
from pairre.models import PairRE
from pairre.runs import Run


def both_sides(ranks, num_candidates, num_equal=0):
    """The same counts on both sides of as many triples."""
    side = Ranks(ranks - 1, torch.full_like(ranks, num_equal), torch.full_like(ranks, num_candidates))
    return {"head": side, "tail": side}


@pytest.fixture
def run(graph, quick):
    model = PairRE(graph.num_entities, graph.num_relations, 5)
    model.initialise(0.5, 0)
    return Run(graph, quick, model.requires_grad_(False))


@pytest.fixture
def new_metric():
    """A metric that is declared for one test, and its key."""

    @metric("log_rank", label="log rank", help="Mean logarithm of the rank.", digits=2, higher_is_better=False)
    def log_rank(ranks, num_candidates):
        return ranks.log()

    yield "log_rank"
    del METRICS["log_rank"]


def test_metrics_of_known_ranks():
    found = summarise(both_sides(torch.tensor([1, 2, 4, 20]), 41))["head"]
    assert found.keys() == METRICS.keys() >= {"mrr", "mr", "hits_at_1", "hits_at_3", "hits_at_10", "amri"}
    assert found["mr"] == 6.75
    assert found["mrr"] == pytest.approx((1 + 0.5 + 0.25 + 0.05) / 4)
    assert (found["hits_at_1"], found["hits_at_3"], found["hits_at_10"]) == (0.25, 0.5, 0.75)
    assert found["amri"] == pytest.approx(1 - (6.75 - 1) / 20)


def test_ties_count_for_against_or_half():
    ranks = both_sides(torch.tensor([3]), 10, num_equal=4)
    means = {ties: summarise(ranks, ties)["both"]["mr"] for ties in ("optimistic", "realistic", "pessimistic")}
    assert means == {"optimistic": 3, "realistic": 5, "pessimistic": 7}


def test_a_single_candidate_is_a_perfect_rank():
    assert summarise(both_sides(torch.tensor([1]), 1))["both"]["amri"] == 1


def test_interval_holds_the_mean_and_narrows():
    ranks = torch.from_numpy(np.random.default_rng(0).integers(1, 50, 4000))
    few, many = bootstrap(both_sides(ranks[:100], 50)), bootstrap(both_sides(ranks, 50))
    low, high = many["mrr"]
    assert low < ranks.double().reciprocal().mean() < high
    assert high - low < few["mrr"][1] - few["mrr"][0]
    assert bootstrap(both_sides(ranks, 50)) == many
    assert "amri" not in many  # it is no mean over ranks


def test_a_new_metric_is_one_declaration(run, new_metric):
    result = evaluate(run, by="category")
    expected = result["both"][new_metric]
    assert expected == pytest.approx((result["head"][new_metric] + result["tail"][new_metric]) / 2)
    assert result["interval_95"][new_metric][0] < expected < result["interval_95"][new_metric][1]
    assert all(new_metric in group["both"] for group in result["by_category"].values())

    table = metrics_table(result)
    (column,) = (column for column in table.columns if column.header == "log rank")
    assert next(iter(column.cells)) == f"{expected:.2f}"

    data = collect(run, "test", "pca", lambda *_: None)
    assert {"key": "log_rank", "label": "log rank", "digits": 2} in data["metrics"]
    assert data["evaluation"]["both"][new_metric] == pytest.approx(expected)

    assert ("log_rank", "log rank", "lower", "Mean logarithm of the rank.") in metric_rows()


def test_a_metric_is_declared_once(new_metric):
    with pytest.raises(ValueError, match="log_rank"):
        metric(new_metric, label="again", help="")(lambda ranks, num_candidates: ranks)


def test_breakdowns_show_declared_metrics(run):
    assert set(BREAKDOWN_METRICS) <= METRICS.keys()
    _, table = evaluation_tables(evaluate(run, by="relation"))
    headers = [column.header for column in table.columns]
    assert headers == ["relation", "triples", "MRR", "heads", "tails", "Hits@10", "heads", "tails"]


def test_results_that_lack_a_metric_leave_its_cells_empty(run):
    result = evaluate(run)
    del result["both"]["amri"]
    (column,) = (column for column in metrics_table(result).columns if column.header == "AMRI")
    assert next(iter(column.cells)) == ""
