"""Ranks and metrics of every model against float64, PyKEEN and OGB: the quick part of `soak/numbers.py`."""

import logging
from collections import Counter

import pytest

from pairre.models import models
from soak import numbers

EVERY_MODEL = pytest.mark.parametrize("model_type", models(), ids=lambda m: m.name)


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@EVERY_MODEL
def test_ranks_are_those_of_float64(model_type):
    counts: Counter[str] = Counter()
    for condition in numbers.CONDITIONS:
        counts += numbers.brute_force(model_type, condition, seed=0)
    assert counts["ranks"] == 4 * 2 * 25
    assert counts["near_ties"] < counts["ranks"]


@EVERY_MODEL
def test_metrics_are_those_of_ogb_and_pykeen(model_type):
    assert numbers.as_ogb(model_type, "equal rows", seed=0)["ranks"] == 50
    pytest.importorskip("pykeen", reason="PyKEEN is not installed (the peers extra)")
    assert numbers.as_pykeen(model_type, "equal rows", seed=0)["metrics"] == 18


@pytest.mark.parametrize("model_type", [m for m in models() if m.name in ("pairre", "transr")])
def test_ranks_do_not_depend_on_batches_chunks_and_threads(model_type):
    assert numbers.same_everywhere(model_type, seed=0)["ranks"] > 0


def test_a_wrong_rank_is_noticed():
    """Brute force that accepts anything would prove nothing."""
    graph = numbers.random_graph(0)
    model = numbers.random_model(models()[0], graph, "plain", 0)
    ranks = numbers.rank(model, graph.test, graph.known, "tail")
    numbers.check_ranks(model, graph, graph.test, "tail", ranks)
    ranks.higher[3] += 1
    with pytest.raises(AssertionError):
        numbers.check_ranks(model, graph, graph.test, "tail", ranks)
