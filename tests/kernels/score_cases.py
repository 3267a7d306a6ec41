"""Backends, metrics and random tables for tests of scores and counts."""

import pytest
import torch

from pairre.kernels.backend import Backend
from pairre.kernels.cpu import CpuBackend

try:
    from pairre.kernels.cuda import ranks as cuda_ranks
    from pairre.kernels.cuda import triton_scores
except ModuleNotFoundError:
    triton_scores = None
# Without a GPU, conftest.py has Triton interpret the kernels on the CPU.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(triton_scores is None, reason="triton is not installed")


class TritonBackend(Backend):
    """The kernels in Triton alone, of which some are used only where CUDA C++ cannot be compiled."""

    if triton_scores is not None:
        score_candidates = staticmethod(triton_scores.score_candidates)
        score_pairs = staticmethod(triton_scores.score_pairs)
        true_scores = staticmethod(cuda_ranks.true_scores)
        count_above = staticmethod(cuda_ranks.count_above)


reference, cpu, gpu = Backend(), CpuBackend(), TritonBackend()

METRICS = ["l1", "l2", "modulus", "dot"]
CASES = [
    (metric, form, scaled)
    for metric in METRICS
    for form in ("shared", "own", "weights", "pairs")
    for scaled in (False, True)
    if metric != "dot" or not (scaled or form == "weights")
]
SCALED = [(metric, scaled) for metric in METRICS for scaled in (False, True) if metric != "dot" or not scaled]
# Queries, candidates, features, places of a query.
SHAPES = [(1, 1, 2, 1), (2, 3, 6, 2), (7, 9, 30, 5), (65, 77, 100, 33), (9, 1, 18, 1), (1, 13, 200, 7)]
BACKENDS = [
    pytest.param(reference, "cpu", id="reference"),
    pytest.param(cpu, "cpu", id="cpu"),
    pytest.param(gpu, DEVICE, id="gpu", marks=needs_triton),
]


class Case:
    """Random tables of one metric and form, what a backend makes of them, and what the formula does."""

    def __init__(self, metric, form, scaled, shape, dtype=torch.float32, device="cpu", seed=0):
        num_queries, num_candidates, dim, places = shape
        random = torch.Generator().manual_seed(seed)
        self.metric, self.form = metric, form
        sizes = {
            "query": num_queries,
            "scale": num_queries if scaled else None,
            "candidates": num_queries if form == "pairs" else num_candidates,
            "weights": num_candidates if form == "weights" else None,
        }
        values = {
            k: torch.randn(n, dim, generator=random, dtype=torch.float64) for k, n in sizes.items() if n is not None
        }
        self.tables = {k: v.to(device, dtype).requires_grad_() for k, v in values.items()}
        ids = torch.randint(num_candidates, (num_queries, places), generator=random)
        self.ids = ids.to(device) if form == "own" else None
        width = {"own": (places,), "pairs": ()}.get(form, (num_candidates,))
        self.upstream = torch.randn(num_queries, *width, generator=random, dtype=torch.float64).to(device)

    def scores(self, module, **tables):
        t = {**self.tables, **tables}
        four = (self.metric, t["query"], t.get("scale"), t["candidates"])
        return (
            module.score_pairs(*four)
            if self.form == "pairs"
            else module.score_candidates(*four, self.ids, t.get("weights"))
        )

    def results(self, module):
        """Scores, and the gradients of all tables."""
        scores = self.scores(module)
        gradients = torch.autograd.grad(scores, list(self.tables.values()), self.upstream.to(scores.dtype))
        return [scores, *gradients]

    def expected(self):
        tables = {k: v.detach().double().requires_grad_() for k, v in self.tables.items()}
        ids = torch.arange(len(tables["query"]))[:, None] if self.form == "pairs" else self.ids
        scores = formula(
            self.metric, tables["query"], tables.get("scale"), tables["candidates"], ids, tables.get("weights")
        )
        scores = scores[:, 0] if self.form == "pairs" else scores
        return [scores, *torch.autograd.grad(scores, list(tables.values()), self.upstream)]


def formula(metric, q, w, c, ids, r):
    if metric == "modulus":
        q, w, c, r = (None if t is None else torch.complex(*t.chunk(2, -1)) for t in (q, w, c, r))
    rows = c[None] if ids is None else c[ids]
    if metric == "dot":
        return torch.einsum("bd,bkd->bk", q, rows.expand(len(q), -1, -1))
    x = (q[:, None] if r is None else q[:, None] * r) - (rows if w is None else w[:, None] * rows)
    return -torch.linalg.vector_norm(x, dim=-1) if metric == "l2" else -x.abs().sum(-1)
