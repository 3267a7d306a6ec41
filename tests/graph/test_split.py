"""Splitting by seed: what holds for every list of triples and every share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pairre.graph.split import distinct, num_held_out, split_triples
from pairre.support.errors import GraphError

ROWS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 9)), max_size=60)
SHARES = st.tuples(st.integers(1, 100), st.integers(0, 100), st.integers(0, 100)).map(
    lambda parts: tuple(part / sum(parts) for part in parts)
)


def array(rows):
    return np.array(rows, np.int32).reshape(-1, 3)


def rows_of(triples):
    return [tuple(row) for row in triples.tolist()]


@settings(deadline=None)
@given(rows=ROWS.map(lambda rows: list(dict.fromkeys(rows))), shares=SHARES, seed=st.integers(0, 2**32))
@example(rows=[], shares=(0.9, 0.05, 0.05), seed=0)
@example(rows=[(0, 0, 0)], shares=(0.01, 0.99, 0.0), seed=0)
def test_parts_are_a_partition_and_train_has_seen_everything(rows, shares, seed):
    parts = split_triples(array(rows), 12, 5, shares, seed)
    train, valid, test = (rows_of(parts[s]) for s in ("train", "valid", "test"))
    assert sorted(train + valid + test) == sorted(rows)
    assert {e for h, _, t in rows for e in (h, t)} == {e for h, _, t in train for e in (h, t)}
    assert {r for _, r, _ in rows} == {r for _, r, _ in train}
    asked = num_held_out(len(rows), shares)
    # Each split is as asked, or both are smaller and no more triples could have been spared by this order.
    if [len(valid), len(test)] != asked:
        assert len(valid) <= asked[0]
        assert len(test) <= asked[1]
        assert len(train) <= 10 + 4
        held = len(valid) + len(test)
        assert abs(len(valid) - held * asked[0] / sum(asked)) < 1
    again = split_triples(array(rows), 12, 5, shares, seed)
    assert all(np.array_equal(parts[s], again[s]) for s in parts)


def dense_graph():
    return array([(h, r, t) for h in range(10) for r in range(3) for t in range(10)])


def test_sizes_are_as_asked_where_possible():
    parts = split_triples(dense_graph(), 10, 3, (0.7, 0.2, 0.1), 0)
    assert [len(parts[s]) for s in ("train", "valid", "test")] == [210, 60, 30]
    assert all(part.dtype == np.int32 for part in parts.values())


def test_seeds_differ():
    held = {tuple(rows_of(split_triples(dense_graph(), 10, 3, seed=seed)["test"])) for seed in range(20)}
    assert len(held) == 20


def test_the_held_out_triples_are_drawn_evenly():
    count = np.zeros(300)
    for seed in range(200):
        for h, r, t in rows_of(split_triples(dense_graph(), 10, 3, (0.5, 0.25, 0.25), seed)["test"]):
            count[h * 30 + r * 10 + t] += 1
    assert count.min() > 25  # 50 expected of each, deviation about 6
    assert count.max() < 80


@pytest.mark.parametrize(
    ("shares", "shown"),
    [
        ((0.9, 0.1, 0.1), "90/10/10"),
        ((0.0, 0.5, 0.5), "0/50/50"),
        ((1.2, -0.1, -0.1), "120/-10/-10"),
        ((90.0, 5.0, 5.0), "9000/500/500"),
        ((float("nan"), 0.5, 0.5), "nan/50/50"),
        ((float("inf"), 0.0, 0.0), "inf/0/0"),
        ((0.9, 0.1), "90/10"),
    ],
)
def test_shares_that_are_refused(shares, shown):
    with pytest.raises(GraphError, match=f"^split {shown}: three percentages train/valid/test that add up to 100"):
        split_triples(dense_graph(), 10, 3, shares)


@settings(deadline=None)
@given(rows=ROWS)
@pytest.mark.parametrize("num_entities", [10, 3_000_000_000], ids=["one key", "too large for one key"])
def test_distinct_keeps_the_first_of_each(num_entities, rows):
    assert rows_of(distinct(array(rows), num_entities, 4)) == list(dict.fromkeys(rows))
