"""Pairs above a threshold: every backend against a brute-force comparison of the scores of the reference."""

import pytest
import torch

from pairre.kernels.backend import Backend
from pairre.kernels.cpu import CpuBackend
from pairre.kernels.cpu import collect as cpu_collect
from pairre.kernels.reference import collect as reference_collect

try:
    from pairre.kernels.cuda import collect as cuda_collect
except ModuleNotFoundError:
    cuda_collect = None
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class CudaBackend(Backend):
    """The kernels for CUDA devices; in Triton's interpreter where there is no GPU."""

    if cuda_collect is not None:
        collect_above = staticmethod(cuda_collect.collect_above)


BACKENDS = [
    pytest.param(Backend(), "cpu", id="reference"),
    pytest.param(CpuBackend(), "cpu", id="cpu"),
    pytest.param(
        CudaBackend(), DEVICE, id="gpu", marks=pytest.mark.skipif(cuda_collect is None, reason="triton is missing")
    ),
]
FORMS = [("l1", False), ("l1", True), ("l2", True), ("modulus", True), ("dot", False)]


def tables(scaled, num_queries, num_candidates, dim=4):
    """Few different rows of small whole numbers, so that many scores tie to the bit; some rows are NaN."""
    random = torch.Generator().manual_seed(0)
    sizes = (num_queries, num_queries, num_candidates)
    q, w, c = (torch.randint(-1, 2, (n, dim), generator=random).float() for n in sizes)
    c[::9] = torch.nan
    return q, w if scaled else None, c


def pairs(found):
    return sorted(zip(found.query.tolist(), found.candidate.tolist(), found.score.tolist(), strict=True))


@pytest.mark.parametrize(("backend", "device"), BACKENDS)
@pytest.mark.parametrize(("metric", "scaled"), FORMS)
def test_collects_what_reaches_the_threshold(backend, device, metric, scaled, monkeypatch):
    """At a threshold that many scores tie with, at none, and where nothing reaches it; in several pieces."""
    monkeypatch.setattr(reference_collect, "MAX_ELEMENTS", 70 * 4 * 5)
    monkeypatch.setattr(cpu_collect, "_SCORES", 70 * 16)
    q, w, c = tables(scaled, 18, 70)
    scores = Backend().score_candidates(metric, q, w, c)
    on_device = (t if t is None else t.to(device) for t in (q, w, c))
    q, w, c = on_device
    for threshold in (float(scores[~scores.isnan()].quantile(0.9, interpolation="nearest")), -torch.inf, 1e9):
        found = backend.collect_above(metric, q, w, c, threshold, 18 * 70)
        rows, columns = (scores >= threshold).nonzero().unbind(1)
        wanted = sorted(zip(rows.tolist(), columns.tolist(), scores[rows, columns].tolist(), strict=True))
        assert found.total == len(wanted)
        assert [pair[:2] for pair in pairs(found)] == [pair[:2] for pair in wanted]
        assert [pair[2] for pair in pairs(found)] == pytest.approx([pair[2] for pair in wanted], abs=1e-5)


@pytest.mark.parametrize(("backend", "device"), BACKENDS)
def test_holds_no_more_than_there_is_room_for(backend, device):
    q, w, c = (t if t is None else t.to(device) for t in tables(False, 18, 70))
    everything = backend.collect_above("l1", q, w, c, -torch.inf, 18 * 70)
    some = backend.collect_above("l1", q, w, c, -torch.inf, 7)
    assert some.total == everything.total
    assert len(some.query) == len(some.candidate) == len(some.score) == 7
    assert set(pairs(some)) <= set(pairs(everything))


@pytest.mark.parametrize(("backend", "device"), BACKENDS)
@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_nothing_to_collect(backend, device, shape):
    q, _, c = (t if t is None else t.to(device) for t in tables(False, *shape))
    found = backend.collect_above("l1", q, None, c, -torch.inf, 5)
    assert found.total == len(found.query) == len(found.candidate) == len(found.score) == 0


def test_a_formula_of_a_model():
    def formula(q, w, c):
        assert w is None
        return (q * c).sum(-1)

    q, _, c = tables(False, 5, 8)
    for backend in (Backend(), CpuBackend()):
        assert pairs(backend.collect_above(formula, q, None, c, 0.0, 40)) == pairs(
            Backend().collect_above("dot", q, None, c, 0.0, 40)
        )
