"""Every kernel against the reference: odd shapes, dtypes, forward and backward, NaN, threads."""

import logging
import os
import subprocess
import sys

import pytest
import torch

from pairre import ops
from pairre.errors import DeviceError
from pairre.ops import cpu, reference

# Without a GPU, conftest.py has Triton interpret the kernels on the CPU.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
try:
    from pairre.ops import gpu
except ModuleNotFoundError:
    gpu = None
needs_triton = pytest.mark.skipif(gpu is None, reason="triton is not installed")

SHAPES = [(1, 1, 1, 1), (2, 3, 5, 2), (7, 9, 31, 5), (8, 16, 64, 4), (65, 77, 100, 33), (9, 1, 17, 1), (1, 13, 200, 7)]


def inputs(num_queries, num_candidates, dim, dtype, seed=0):
    random = torch.Generator().manual_seed(seed)
    return [
        torch.randn(n, dim, dtype=dtype, generator=random, requires_grad=True)
        for n in (num_queries, num_queries, num_candidates)
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("own", [False, True])
def test_weighted_l1_equals_the_formula(shape, dtype, own):
    num_queries, num_candidates, dim, places = shape
    q, w, c = inputs(num_queries, num_candidates, dim, dtype)
    ids = (
        torch.randint(num_candidates, (num_queries, places), generator=torch.Generator().manual_seed(1))
        if own
        else None
    )
    rows = c[ids] if own else c[None]
    expected = -(q[:, None] - w[:, None] * rows).abs().sum(-1)
    upstream = torch.randn(expected.shape, dtype=dtype, generator=torch.Generator().manual_seed(2))
    wanted = torch.autograd.grad(expected, (q, w, c), upstream)
    for module in (cpu, reference):
        scores = module.weighted_l1(q, w, c, ids)
        torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)
        for got, want in zip(torch.autograd.grad(scores, (q, w, c), upstream), wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@needs_triton
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("own", [False, True])
def test_gpu_kernels_equal_the_reference(shape, own, monkeypatch):
    """In float32 within 1e-5 of the float64 reference, relative to the norm; split sums too."""
    monkeypatch.setattr(gpu, "_PROGRAMS", 8)
    num_queries, num_candidates, dim, places = shape
    q, w, c = (t.detach().to(DEVICE).requires_grad_() for t in inputs(num_queries, num_candidates, dim, torch.float32))
    random = torch.Generator().manual_seed(1)
    ids = torch.randint(num_candidates, (num_queries, places), generator=random).to(DEVICE) if own else None
    scores, expected = gpu.weighted_l1(q, w, c, ids), reference.weighted_l1(q.double(), w.double(), c.double(), ids)
    upstream = torch.randn(expected.shape, generator=random).to(DEVICE)
    got = (scores, *torch.autograd.grad(scores, (q, w, c), upstream))
    want = (expected, *torch.autograd.grad(expected, (q, w, c), upstream.double()))
    for a, b in zip(got, want, strict=True):
        assert (a - b).norm() <= 1e-5 * b.norm() + 1e-12
    with torch.no_grad():
        again = gpu.weighted_l1(q, w, c, ids)  # without a gradient nothing is split
    assert (again - expected).norm() <= 1e-5 * expected.norm()


@needs_triton
def test_gpu_scores_tie_exactly():
    q, w, c = (t.detach().to(DEVICE) for t in inputs(5, 1, 77, torch.float32))
    for num in (1, 3, 30):
        scores = gpu.weighted_l1(q, w, c.expand(num, -1))
        assert torch.equal(scores, scores[:, :1].expand_as(scores))
        assert torch.equal(scores[:2], gpu.weighted_l1(q[:2], w[:2], c.expand(num, -1)))


@needs_triton
@pytest.mark.parametrize("ids", [None, [0, 3, 4]])
@pytest.mark.parametrize("dense", [True, False])
def test_gpu_optimisers_equal_the_reference(ids, dense):
    random = torch.Generator().manual_seed(0)
    start = torch.randn(6, 5, generator=random).to(DEVICE)
    rows = None if ids is None else torch.tensor(ids, device=DEVICE)
    results = []
    for module in (gpu, reference):
        random.manual_seed(1)
        table, mean, square, sums = (
            *(start.clone(), torch.zeros_like(start), torch.zeros_like(start)),
            torch.zeros(6, device=DEVICE),
        )
        for step in (1, 2, 3):
            gradient = torch.randn(6 if ids is None else 3, 5, generator=random).to(DEVICE)
            module.adam_rows(table, mean, square, rows, gradient, ops.AdamStep(0.1, step, dense))
            module.adagrad_rows(table, sums, rows, gradient, lr=0.1, eps=1e-10)
        results.append((table, mean, square, sums))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_gradients_match_finite_differences():
    q, w, c = inputs(3, 4, 6, torch.float64)
    ids = torch.tensor([[0, 1], [3, 3], [2, 0]])
    assert torch.autograd.gradcheck(lambda *a: cpu.weighted_l1(*a), (q, w, c), eps=1e-7)
    assert torch.autograd.gradcheck(lambda *a: cpu.weighted_l1(*a, ids), (q, w, c), eps=1e-7)


def test_reference_in_chunks_is_the_same(monkeypatch):
    q, w, c = inputs(30, 20, 8, torch.float64)
    whole = reference.weighted_l1(q, w, c)
    gradient = torch.autograd.grad(whole.square().sum(), (q, w, c))
    monkeypatch.setattr(reference, "_BUDGET", 20 * 8 * 4)
    chunked = reference.weighted_l1(q, w, c)
    assert torch.equal(whole, chunked)
    for got, want in zip(torch.autograd.grad(chunked.square().sum(), (q, w, c)), gradient, strict=True):
        torch.testing.assert_close(got, want)


def test_equal_rows_tie_exactly_wherever_they_stand():
    q, w, c = inputs(5, 1, 77, torch.float32)
    for num in (1, 2, 3, 4, 5, 9, 30):
        scores = cpu.weighted_l1(q, w, c.expand(num, -1))
        assert torch.equal(scores, scores[:, :1].expand_as(scores))
        assert torch.equal(scores[:3], cpu.weighted_l1(q[:3], w[:3], c.expand(num, -1)))


def test_nan_and_infinity_pass_through():
    q, w, c = (t.detach() for t in inputs(2, 3, 20, torch.float32))
    c[1, 3], c[2, 5] = torch.nan, torch.inf
    for ids in (None, torch.tensor([[0, 1, 2]] * 2)):
        scores = cpu.weighted_l1(q, w, c, ids)
        assert scores[:, 0].isfinite().all()
        assert scores[:, 1].isnan().all()
        assert (scores[:, 2] == -torch.inf).all()


def test_bits_do_not_depend_on_the_number_of_threads():
    q, w, c = inputs(33, 21, 50, torch.float32)
    ids = torch.randint(21, (33, 6), generator=torch.Generator().manual_seed(0))

    def everything():
        results = []
        for chosen in (None, ids):
            scores = cpu.weighted_l1(q, w, c, chosen)
            results += [scores, *torch.autograd.grad(scores.square().sum(), (q, w, c))]
        return results

    before = torch.get_num_threads()
    results = []
    try:
        for num_threads in (1, 2, 5):
            torch.set_num_threads(num_threads)
            results.append(everything())
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_bits_are_the_same_from_the_compiler_and_from_its_cache(tmp_path):
    """A process that compiles the kernels and one that finds them in the cache must agree: resuming depends on it."""
    code = """if True:
        import hashlib, torch
        from pairre.ops import cpu, reference
        random = torch.Generator().manual_seed(0)
        q, w, c = (torch.randn(n, 200, generator=random, requires_grad=True) for n in (33, 33, 21))
        digest = hashlib.sha256()
        for ids in (None, torch.randint(21, (33, 7), generator=random), torch.randint(21, (33, 1), generator=random)):
            scores = cpu.weighted_l1(q, w, c, ids)
            for part in (scores, *torch.autograd.grad(scores.square().sum(), (q, w, c))):
                digest.update(part.detach().numpy().tobytes())
        table, mean, square = (torch.ones(9, 200), torch.zeros(9, 200), torch.zeros(9, 200))
        step = reference.AdamStep(0.1, 1, dense=True)
        cpu.adam_rows(table, mean, square, torch.tensor([1, 4]), q.detach()[:2], step)
        digest.update(table.numpy().tobytes())
        print(digest.hexdigest())
    """
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert any(tmp_path.rglob("*.nbc")), "nothing was cached"
    assert said[0] == said[1]


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("ids", [None, [0, 3, 4]])
def test_adam_equals_torch(ids, dense):
    """With `dense`, rows that are touched now and then move as torch's do; without, only the touched rows can match."""
    random = torch.Generator().manual_seed(0)
    start = torch.randn(6, 5, generator=random, dtype=torch.float64)
    expected = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.Adam([expected], lr=0.1)
    always = torch.arange(6) if ids is None else torch.tensor(ids)
    rows = torch.arange(6) if dense else always
    tables = [(m, start.clone(), torch.zeros_like(start), torch.zeros_like(start)) for m in (cpu, reference)]
    for step in range(1, 5):
        chosen = torch.tensor([step % 6, 5]) if dense and ids is not None and step % 2 else always
        gradient = torch.randn(len(chosen), 5, generator=random, dtype=torch.float64)
        expected.grad = torch.zeros_like(start)
        expected.grad[chosen] = gradient
        optimizer.step()
        for module, table, mean, square in tables:
            settings = ops.AdamStep(0.1, step, dense)
            module.adam_rows(table, mean, square, None if ids is None else chosen, gradient, settings)
    untouched = [] if dense or ids is None else [1, 2, 5]
    for _, table, _, _ in tables:
        torch.testing.assert_close(table[rows], expected.detach()[rows])
        assert torch.equal(table[untouched], start[untouched])


@pytest.mark.parametrize("ids", [None, [1, 2]])
def test_adagrad_has_one_accumulator_a_row(ids):
    start = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = torch.arange(4) if ids is None else torch.tensor(ids)
    gradient = torch.randn(len(rows), 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = start.clone()
    expected[rows] -= 0.5 * gradient / (gradient.square().mean(1, keepdim=True).sqrt() + 1e-10)
    for module in (cpu, reference):
        table, square = start.clone(), torch.zeros(4, dtype=torch.float64)
        module.adagrad_rows(table, square, None if ids is None else rows, gradient, lr=0.5, eps=1e-10)
        torch.testing.assert_close(table, expected)


def test_a_fallback_is_said_once(monkeypatch, caplog):
    monkeypatch.setenv("PAIRRE_OPS", "reference")
    ops.backend.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "pairre"):
            assert ops.backend("cpu") is reference
            assert ops.backend("cpu") is reference
        assert len(caplog.records) == 1
        monkeypatch.setenv("PAIRRE_OPS", "fastest")
        ops.backend.cache_clear()
        with pytest.raises(DeviceError, match="PAIRRE_OPS=fastest"):
            ops.backend("cpu")
    finally:
        ops.backend.cache_clear()
    monkeypatch.delenv("PAIRRE_OPS")
    assert ops.backend("cpu") is cpu
    ops.backend.cache_clear()
