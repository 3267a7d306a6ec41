"""Ranks from kernels: counts of every backend against brute force, with the bits of the scores."""

import pytest
import torch
from score_cases import BACKENDS, SCALED, Case, gpu

from pairre.kernels import RankingBatch
from pairre.kernels.cpu import ranks as cpu_ranks
from pairre.kernels.reference import ranks as reference_ranks
from pairre.kernels.reference import scores as reference_scores


def brute_force(scores, true, lists, own, first):
    """Counts from [B, N] scores."""
    higher, equal = [], []
    for b, row in enumerate(scores):
        left_out = {*lists[b], own[b].item()}
        kept = [s.item() for n, s in enumerate(row) if first + n not in left_out]
        higher.append(sum(s > true[b].item() for s in kept))
        equal.append(sum(s == true[b].item() for s in kept))
    return torch.tensor(higher), torch.tensor(equal)


@pytest.mark.parametrize(("module", "device"), BACKENDS)
@pytest.mark.parametrize(("metric", "scaled"), SCALED)
def test_counts_equal_brute_force(module, device, metric, scaled, monkeypatch):
    """Few different rows, so that many tie; ranges empty, short, and of all entities; some rows score NaN."""
    monkeypatch.setattr(reference_ranks, "MAX_ELEMENTS", 70 * 4 * 5)
    monkeypatch.setattr(reference_scores, "MAX_ELEMENTS", 70 * 4 * 5)
    monkeypatch.setattr(cpu_ranks, "_SCORES", 70 * 16)
    num_queries, num_candidates, first = (18, 70, 40) if module is not gpu or scaled or metric == "dot" else (3, 40, 0)
    random = torch.Generator().manual_seed(0)
    q, w, c = (
        torch.randint(-1, 2, (n, 4), generator=random).float() for n in (num_queries, num_queries, num_candidates)
    )
    w = w.to(device) if scaled else None
    c[::9] = torch.nan
    own = torch.randint(-1, num_candidates + 60, (num_queries,), generator=random)
    lists = [
        sorted(torch.randperm(150, generator=random)[: (0, 1, 7, 150)[b % 4]].tolist()) for b in range(num_queries)
    ]
    lists[2] = sorted({*lists[2], own[2].item()} - {-1})
    lengths = torch.tensor([len(x) for x in lists])
    end = lengths.cumsum(0) + 3  # three that are nobody's in front
    members = torch.tensor([0, 0, 0, *(m for x in lists for m in x)], dtype=torch.int32)
    q, c = q.to(device), c.to(device)
    true = module.true_scores(
        metric, q, w, c[torch.randint(num_candidates, (num_queries,), generator=random).to(device)]
    )
    assert true.isnan().any() or num_queries < 18
    scores = module.score_candidates(metric, q, w, c)
    known = ((end - lengths).to(device), end.to(device), members.to(device))
    got = module.count_above(RankingBatch(metric, q, w, true, own.to(device), *known), c, first)
    assert all(g.dtype == torch.int64 for g in got)
    wanted = brute_force(scores.cpu(), true.cpu(), lists, own, first)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(got, wanted, strict=True))
    assert wanted[0].any()
    assert wanted[1].any()


@pytest.mark.parametrize(("module", "device"), BACKENDS)
@pytest.mark.parametrize(("metric", "scaled"), SCALED)
def test_true_scores_have_the_bits_that_are_counted(module, device, metric, scaled):
    """A query meets its own row among the others and finds it equal; nothing else is."""
    for num, dim in ((1, 2), (37, 6)) if module is gpu else ((1, 2), (77, 30), (130, 206)):
        case = Case(metric, "pairs", scaled, (num, num, dim, 1), device=device)
        q, w, c = (case.tables.get(name) for name in ("query", "scale", "candidates"))
        true = module.true_scores(metric, q, w, c)
        assert not true.requires_grad
        with torch.no_grad():
            scores = module.score_candidates(metric, q, w, c)
        assert torch.equal(true, scores.diagonal())
        nothing = torch.zeros(num, dtype=torch.int64, device=device)
        members = torch.zeros(0, dtype=torch.int32, device=device)
        higher, equal = module.count_above(
            RankingBatch(metric, q, w, true, nothing - 1, nothing, nothing, members), c, 0
        )
        assert equal.tolist() == [1] * num
        assert torch.equal(higher, (scores > true[:, None]).sum(1))
        own = torch.arange(num, device=device) + 7
        _, equal = module.count_above(RankingBatch(metric, q, w, true, own, nothing, nothing, members), c, 7)
        assert not equal.any()


@pytest.mark.parametrize(("module", "device"), BACKENDS)
def test_nothing_to_count(module, device):
    for num_queries, num_candidates in ((0, 3), (3, 0)):
        q, c = torch.ones(num_queries, 4, device=device), torch.ones(num_candidates, 4, device=device)
        zeros = torch.zeros(num_queries, dtype=torch.int64, device=device)
        members = torch.zeros(0, dtype=torch.int32, device=device)
        counts = module.count_above(RankingBatch("l1", q, None, q[:, 0], zeros, zeros, zeros, members), c, 0)
        assert [x.tolist() for x in counts] == [[0] * num_queries] * 2
    assert module.true_scores("l1", q[:0], None, q[:0]).shape == (0,)
