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
    query, member = known.known(tensor(queries), side)
    assert member.dtype == torch.int64
    found = list(zip(query.tolist(), member.tolist(), strict=True))
    assert found == [(i, m) for i, row in enumerate(queries) for m in sorted(expected[key(row, side)])]
    assert known.count(tensor(queries), side).tolist() == [len(expected[key(row, side)]) for row in queries]


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
    begin, end = index.ranges(*(triples[:, c] for c in ([0, 2] if side == "relation" else [2 - COLUMN[side], 1])))

    for candidates, lists in ((shared, [shared] * len(queries)), (own, own)):
        one = torch.tensor(candidates, dtype=dtype).reshape(-1) if candidates is shared else None
        block = torch.tensor(candidates, dtype=dtype).reshape(len(queries), num) if one is None else one
        wanted = [[m in expected[key(row, side)] for m in ms] for row, ms in zip(queries, lists, strict=True)]
        found = known.contains(triples, side, block)
        assert found.dtype == torch.bool
        assert found.shape == (len(queries), num)
        assert found.tolist() == wanted
        # what every other device does
        assert index._search_all(begin, end, block[None] if block.dim() == 1 else block).tolist() == wanted


@all_sides
def test_an_empty_graph_knows_nothing(side):
    known = KnownTriples(tensor([]), 5, 2)
    queries = tensor([(0, 0, 0), (4, 1, 4)])
    assert known.count(queries, side).tolist() == [0, 0]
    assert [part.tolist() for part in known.known(queries, side)] == [[], []]
    candidates = torch.tensor([0, 1])
    assert not known.contains(queries, side, candidates).any()
    zero = torch.zeros(2, dtype=torch.int64)
    assert not known.side(side)._search_all(zero, zero, candidates[None]).any()


def test_repeated_triples_are_held_once():
    index = SideIndex.build(tensor([(0, 0, 1), (0, 0, 1), (0, 0, 2), (0, 0, 1)]), "tail", 3, 1)
    assert index.members.tolist() == [1, 2]
    assert index.members.dtype == torch.int32
    assert index.offsets.tolist() == [0, 2]


def test_rows_of_candidates_that_are_not_contiguous():
    known = KnownTriples(tensor([(0, 0, 1), (1, 0, 2)]), 3, 1)
    candidates = torch.tensor([[0, 1], [1, 2], [2, 0]]).T  # [2, 3]
    assert known.contains(tensor([(0, 0, 0), (1, 0, 0)]), "tail", candidates).tolist() == [
        [False, True, False],
        [False, True, False],
    ]


def test_a_block_of_candidates_for_other_queries_is_refused():
    known = KnownTriples(tensor([(0, 0, 1)]), 3, 1)
    with pytest.raises(AssertionError, match="3 rows of candidates for 2 pairs"):
        known.contains(tensor([(0, 0, 0), (1, 0, 0)]), "tail", torch.zeros(3, 2, dtype=torch.int64))


def test_a_side_is_built_once_for_all_copies(monkeypatch):
    built = []
    build = SideIndex.build.__func__
    monkeypatch.setattr(SideIndex, "build", classmethod(lambda cls, *args: built.append(args[1]) or build(cls, *args)))
    known = KnownTriples(tensor([(0, 0, 1), (1, 0, 2)]), 3, 1)
    for _ in range(2):
        assert known.to("cpu").count(tensor([(0, 0, 0)]), "tail").tolist() == [1]
        assert known.to(torch.device("cpu")).side("tail") is known.side("tail")
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
    device = host.to("cuda")
    assert torch.equal(host.count(queries, side), device.count(queries.cuda(), side).cpu())
    for one, other in zip(host.known(queries, side), device.known(queries.cuda(), side), strict=True):
        assert torch.equal(one, other.cpu())
    for block in (candidates, candidates[0]):
        assert torch.equal(
            host.contains(queries, side, block), device.contains(queries.cuda(), side, block.cuda()).cpu()
        )
