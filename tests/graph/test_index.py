"""The index of known triples against plain Python sets, from every side and by every code path."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairre.graph.index import COLUMN, KnownTriples, SideIndex

SIDES = ("head", "relation", "tail")
# Sizes and ids: a small graph, and one whose ids together do not fit one 64-bit key. Ids are only numbers.
SMALL = (8, 4, list(range(8)))
LARGE = (2**31, 9, [0, 1, 2**30, 2**31 - 3, 2**31 - 1])


@st.composite
def graphs(draw, sizes):
    _, num_relations, ids = sizes
    entity, relation = st.sampled_from(ids), st.integers(0, num_relations - 1)
    row = st.tuples(entity, relation, entity)
    rows = draw(st.lists(row, max_size=40))
    queries = draw(st.lists(row, max_size=12))
    return rows, queries


def tensor(rows, dtype=torch.int32):
    return torch.tensor(rows, dtype=dtype).reshape(-1, 3)


def answers(rows, side):
    """Members by the other two, the slow way."""
    column = COLUMN[side]
    found = defaultdict(set)
    for row in rows:
        found[row[:column] + row[column + 1 :]].add(row[column])
    return found


def key(row, side):
    column = COLUMN[side]
    return row[:column] + row[column + 1 :]


def members_of(sizes, side):
    return list(range(sizes[1])) if side == "relation" else sizes[2]


both_sizes = pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["one key", "too large for one key"])
all_sides = pytest.mark.parametrize("side", SIDES)
many = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@both_sizes
@all_sides
@many
@given(data=st.data())
def test_known_and_count(sizes, side, data):
    rows, queries = data.draw(graphs(sizes))
    known = KnownTriples(tensor(rows), sizes[0], sizes[1])
    expected = answers(rows, side)
    query, member = known.side(side).known(tensor(queries))
    assert member.dtype == torch.int64
    found = list(zip(query.tolist(), member.tolist(), strict=True))
    assert found == [(i, m) for i, row in enumerate(queries) for m in sorted(expected[key(row, side)])]
    assert known.side(side).count(tensor(queries)).tolist() == [len(expected[key(row, side)]) for row in queries]


@both_sizes
@all_sides
@many
@given(data=st.data())
def test_contains(sizes, side, data):
    rows, queries = data.draw(graphs(sizes))
    dtype = data.draw(st.sampled_from([torch.int32, torch.int64]))
    triples = tensor(queries, dtype)
    expected = answers(rows, side)
    choices = members_of(sizes, side)
    candidate = st.sampled_from(choices)
    num = data.draw(st.integers(0, 6))
    shared = data.draw(st.lists(candidate, min_size=num, max_size=num))
    own = [data.draw(st.lists(candidate, min_size=num, max_size=num)) for _ in queries]
    known = KnownTriples(tensor(rows), sizes[0], sizes[1])
    index = known.side(side)

    for candidates, lists in ((shared, [shared] * len(queries)), (own, own)):
        one = torch.tensor(candidates, dtype=dtype).reshape(-1) if candidates is shared else None
        block = torch.tensor(candidates, dtype=dtype).reshape(len(queries), num) if one is None else one
        wanted = [[m in expected[key(row, side)] for m in ms] for row, ms in zip(queries, lists, strict=True)]
        found = index.contains(triples, block)
        assert found.dtype == torch.bool
        assert found.shape == (len(queries), num)
        assert found.tolist() == wanted


@all_sides
def test_an_empty_graph_knows_nothing(side):
    index = KnownTriples(tensor([]), 5, 2).side(side)
    queries = tensor([(0, 0, 0), (4, 1, 4)])
    assert index.count(queries).tolist() == [0, 0]
    assert [part.tolist() for part in index.known(queries)] == [[], []]
    candidates = torch.tensor([0, 1])
    assert not index.contains(queries, candidates).any()


def test_repeated_triples_are_held_once():
    index = SideIndex.build(tensor([(0, 0, 1), (0, 0, 1), (0, 0, 2), (0, 0, 1)]), "tail", 3, 1)
    assert index.members.tolist() == [1, 2]
    assert index.members.dtype == torch.int32
    assert index.offsets.tolist() == [0, 2]


def test_rows_of_candidates_that_are_not_contiguous():
    known = KnownTriples(tensor([(0, 0, 1), (1, 0, 2)]), 3, 1)
    candidates = torch.tensor([[0, 1], [1, 2], [2, 0]]).T  # [2, 3]
    assert known.side("tail").contains(tensor([(0, 0, 0), (1, 0, 0)]), candidates).tolist() == [
        [False, True, False],
        [False, True, False],
    ]


def test_a_block_of_candidates_for_other_queries_is_refused():
    known = KnownTriples(tensor([(0, 0, 1)]), 3, 1)
    with pytest.raises(AssertionError, match="3 rows of candidates for 2 triples"):
        known.side("tail").contains(tensor([(0, 0, 0), (1, 0, 0)]), torch.zeros(3, 2, dtype=torch.int64))


def test_a_side_is_built_once(monkeypatch):
    built = []
    build = SideIndex.build.__func__
    monkeypatch.setattr(SideIndex, "build", classmethod(lambda cls, *args: built.append(args[1]) or build(cls, *args)))
    known = KnownTriples(tensor([(0, 0, 1), (1, 0, 2)]), 3, 1)
    for _ in range(2):
        assert known.side("tail").count(tensor([(0, 0, 0)])).tolist() == [1]
        assert known.side("tail", torch.device("cpu")) is known.side("tail")
    assert built == ["tail"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@all_sides
def test_a_gpu_gives_the_same_answers(side):
    random = np.random.default_rng(0)
    sizes = np.array([50, 7, 50])
    triples, queries = (torch.from_numpy((random.random((n, 3)) * sizes).astype(np.int32)) for n in (2000, 300))
    candidates = torch.from_numpy(random.integers(0, sizes[COLUMN[side]], (300, 20)))
    host = KnownTriples(triples, 50, 7)
    device, host = host.side(side, torch.device("cuda:0")), host.side(side)
    assert torch.equal(host.count(queries), device.count(queries.cuda()).cpu())
    for one, other in zip(host.known(queries), device.known(queries.cuda()), strict=True):
        assert torch.equal(one, other.cpu())
    for block in (candidates, candidates[0]):
        assert torch.equal(host.contains(queries, block), device.contains(queries.cuda(), block.cuda()).cpu())
