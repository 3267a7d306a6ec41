"""Queries against candidates: every metric and form of every backend against the formula in float64."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from score_cases import (
    BACKENDS,
    CASES,
    DEVICE,
    METRICS,
    SCALED,
    SHAPES,
    Case,
    cpu,
    gpu,
    needs_triton,
    reference,
    triton_scores,
)

from pairre.kernels import RankingBatch
from pairre.kernels.reference import scores as reference_scores
from pairre.kernels.reference.scores import stable_product


def assert_near(got, want, error):
    """Within an error relative to the norm."""
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        assert (a - b).norm() <= error * b.norm() + 1e-12


@pytest.mark.parametrize(("metric", "form", "scaled"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_formula(metric, form, scaled, dtype):
    """Within 1e-5 of the norm in float32 and 1e-12 in float64."""
    for shape in SHAPES:
        case = Case(metric, form, scaled, shape, dtype)
        wanted = case.expected()
        for module in (reference, cpu):
            got = case.results(module)
            assert all(t.dtype == dtype for t in got)
            assert_near(got, wanted, 1e-5 if dtype == torch.float32 else 1e-12)


@needs_triton
@pytest.mark.parametrize(("metric", "form", "scaled"), CASES)
def test_gpu_equals_the_formula(metric, form, scaled, monkeypatch):
    """Within 1e-5 of the norm; parts of a tile, one element, more than a tile, blocks of features, split sums."""
    own = form in ("own", "pairs")
    shapes = [(3 if own else 5, 9, 14, 3)]
    if scaled or metric == "dot":
        shapes += [(1, 1, 2, 1), *([(2, 33, 4, 18), (2, 3, 1100, 1)] if own else [(17, 33, 4, 1)])]
    for shape in shapes:
        case = Case(metric, form, scaled, shape, device=DEVICE)
        assert_near(case.results(gpu), case.expected(), 1e-5)
    if not own:
        monkeypatch.setattr(triton_scores, "split_sum", split_in_three)
        case = Case(metric, form, scaled, (5, 7, 14, 1), device=DEVICE)
        assert_near(case.results(gpu), case.expected(), 1e-5)


def split_in_three(_programs, length, _least, allowed):
    return min(3, length) if allowed else 1


@needs_triton
def test_gpu_sums_are_split_where_programs_are_few():
    assert triton_scores.split_sum(1, 1000, 64, True) == 15
    assert triton_scores.split_sum(500, 1000, 64, True) == 3
    assert (
        triton_scores.split_sum(triton_scores._PROGRAMS, 1000, 64, True)
        == triton_scores.split_sum(1, 100, 64, True)
        == triton_scores.split_sum(1, 999, 1, False)
        == 1
    )


@needs_triton
@pytest.mark.parametrize(("metric", "form"), [("l1", "shared"), ("modulus", "weights")])
def test_gpu_tables_beyond_32_bits(metric, form, monkeypatch):
    """The code for them, on small ones."""
    monkeypatch.setattr(triton_scores, "needs_int64", lambda *_: True)
    case = Case(metric, form, True, (5, 9, 14, 3), device=DEVICE)
    assert_near(case.results(gpu), case.expected(), 1e-5)


@needs_triton
@pytest.mark.parametrize(("metric", "form"), [(k, f) for k, f, scaled in CASES if scaled or k == "dot"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gpu_half_precision(metric, form, dtype):
    """Against float64 of the same rounded tables: scores within 1e-5 of the norm; a gradient is itself rounded, to
    within 5e-4 of it in float16 and 8e-3 in bfloat16, which Triton's interpreter cuts off.
    """
    case = Case(metric, form, metric != "dot", (3, 5, 10, 2), dtype, DEVICE)
    scores, *gradients = case.results(gpu)
    wanted, *wanted_gradients = case.expected()
    assert scores.dtype == torch.float32
    assert all(g.dtype == dtype for g in gradients)
    assert_near([scores], [wanted], 1e-5)
    assert_near(gradients, wanted_gradients, 5e-4 if dtype == torch.float16 else 8e-3)
    with torch.no_grad():
        assert_near([case.scores(reference)], [wanted], 1e-5)


@needs_triton
def test_gpu_tables_of_different_types():
    case = Case("l2", "shared", True, (3, 5, 10, 2), device=DEVICE)
    case.tables["candidates"] = case.tables["candidates"].detach().half().requires_grad_()
    got = case.results(gpu)
    assert [t.dtype for t in got] == [torch.float32] * 3 + [torch.float16]
    assert_near(got, case.expected(), 5e-4)


@pytest.mark.parametrize(("metric", "form", "scaled"), CASES)
@pytest.mark.parametrize("module", [reference, cpu], ids=["reference", "cpu"])
def test_gradients_match_finite_differences(module, metric, form, scaled):
    case = Case(metric, form, scaled, (3, 4, 6, 2), torch.float64)
    names = list(case.tables)
    assert torch.autograd.gradcheck(
        lambda *values: case.scores(module, **dict(zip(names, values, strict=True))),
        list(case.tables.values()),
        eps=1e-7,
    )


@pytest.mark.parametrize(("module", "device"), BACKENDS)
@pytest.mark.parametrize("metric", ["l2", "modulus"])
@pytest.mark.parametrize("form", ["shared", "own", "weights", "pairs"])
def test_the_gradient_of_a_root_is_0_at_0(module, device, metric, form):
    case = Case(metric, form, False, (2, 2, 6, 2), device=device)
    with torch.no_grad():
        for table in case.tables.values():
            table[:] = case.tables["query"][0] if form != "weights" else 0
    scores, *gradients = case.results(module)
    assert not scores.any()
    assert all(not g.any() for g in gradients)


@pytest.mark.parametrize(("module", "device"), BACKENDS)
def test_only_the_gradients_that_are_needed(module, device):
    for form in ("shared", "own", "weights", "pairs"):
        case = Case("l2", form, True, (3, 5, 4, 2), device=device)
        wanted = dict(zip(case.tables, case.expected()[1:], strict=True))
        for name, table in case.tables.items():
            others = {k: v.detach() for k, v in case.tables.items() if k != name}
            (got,) = torch.autograd.grad(case.scores(module, **others), [table], case.upstream.float())
            assert_near([got], [wanted[name]], 1e-5)


@pytest.mark.parametrize(("module", "device"), BACKENDS)
@pytest.mark.parametrize("metric", METRICS)
def test_nothing_to_compare(module, device, metric):
    for num_queries, num_candidates, places in ((0, 3, 2), (2, 0, 0), (0, 0, 0)):
        for form in ("shared", "own"):
            case = Case(metric, form, False, (num_queries, max(num_candidates, 1), 4, places), device=device)
            case.tables["candidates"] = case.tables["candidates"][:num_candidates].detach().requires_grad_()
            if form == "shared":
                case.upstream = case.upstream[:, :num_candidates]
            scores, *gradients = case.results(module)
            assert scores.shape == (num_queries, places if form == "own" else num_candidates)
            assert all(not g.any() for g in gradients)


@pytest.mark.parametrize(("metric", "form", "scaled"), CASES)
def test_reference_in_chunks_is_the_same(metric, form, scaled, monkeypatch):
    case = Case(metric, form, scaled, (30, 20, 8, 5), torch.float64)
    whole = case.results(reference)
    monkeypatch.setattr(reference_scores, "MAX_ELEMENTS", 20 * 8 * 4)
    assert_near(case.results(reference), whole, 1e-14)


@pytest.mark.parametrize(("module", "device"), BACKENDS)
@pytest.mark.parametrize(("metric", "scaled"), SCALED)
def test_equal_rows_tie_exactly_wherever_they_stand(module, device, metric, scaled):
    case = Case(metric, "shared", scaled, (5, 1, 10 if module is gpu else 154, 1), device=device)
    q, w, c = (case.tables.get(name) for name in ("query", "scale", "candidates"))
    with torch.no_grad():
        for num in (1, 5, 33) if module is gpu else (1, 2, 3, 4, 5, 9, 33):
            scores = module.score_candidates(metric, q, w, c.expand(num, -1))
            assert torch.equal(scores, scores[:, :1].expand_as(scores))
            assert torch.equal(
                scores[:3], module.score_candidates(metric, q[:3], None if w is None else w[:3], c.expand(num, -1))
            )


@needs_triton
def test_gpu_scores_without_a_gradient_are_not_split(monkeypatch):
    """Though the tables could have one."""
    monkeypatch.setattr(triton_scores, "split_sum", split_in_three)
    case = Case("l1", "shared", True, (5, 9, 20, 1), device=DEVICE)
    tables = {k: v.detach() for k, v in case.tables.items()}
    with torch.no_grad():
        assert torch.equal(case.scores(gpu), case.scores(gpu, **tables))
    assert not torch.equal(case.scores(gpu), case.scores(gpu, **tables))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # Triton's interpreter computes with numpy
@pytest.mark.parametrize(("module", "device"), BACKENDS)
@pytest.mark.parametrize("metric", METRICS)
def test_nan_and_infinity_pass_through(module, device, metric):
    case = Case(metric, "shared", metric != "dot", (3, 3, 20, 1), device=device)
    q, w, c = (None if t is None else t.detach().abs() for t in map(case.tables.get, ("query", "scale", "candidates")))
    c[1, 3], c[2, 5] = torch.nan, torch.inf
    paired = module.score_pairs(metric, q, w, c)
    for ids in (None, torch.tensor([[0, 1, 2]] * 3, device=device)):
        scores = module.score_candidates(metric, q, w, c, ids)
        assert scores[:, 0].isfinite().all()
        assert scores[:, 1].isnan().all()
        assert (scores[:, 2] == (torch.inf if metric == "dot" else -torch.inf)).all()
        assert scores.diagonal().isnan().equal(paired.isnan())
        assert paired[2] == scores[2, 2]


def test_bits_do_not_depend_on_the_number_of_threads():
    cases = [Case(*case, (33, 21, 50, 6)) for case in CASES]
    before = torch.get_num_threads()
    results = []
    try:
        for num_threads in (1, 2, 5):
            torch.set_num_threads(num_threads)
            results.append([part for case in cases for part in case.results(cpu)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def digest_of_all():
    """A digest of what the CPU's kernels compute; see below."""
    digest = hashlib.sha256()
    chosen = [("l1", "shared", True), ("l2", "own", False), ("dot", "own", False)]
    for metric, form, scaled in chosen:
        for part in Case(metric, form, scaled, (33, 21, 200, 7)).results(cpu):
            digest.update(part.detach().numpy().tobytes())
    return digest.hexdigest()


def test_bits_are_the_same_from_the_compiler_and_from_its_cache(tmp_path):
    """A process that compiles the kernels and one that finds them in the cache must agree: resuming depends on it.

    Kernels that a function makes for a metric must be told apart in the cache, too.
    """
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "import test_scores; print(test_scores.digest_of_all())"
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert any(tmp_path.rglob("*.nbc")), "nothing was cached"
    assert said == [digest_of_all()] * 2


@pytest.mark.parametrize(("module", "device"), BACKENDS)
def test_what_means_nothing_is_refused(module, device):
    odd, even = torch.ones(2, 3, device=device), torch.ones(2, 4, device=device)
    ids = torch.zeros(2, 1, dtype=torch.int64, device=device)
    for function in (module.score_candidates, module.score_pairs, module.true_scores):
        with pytest.raises(ValueError, match="metric 'cosine': unknown; there are l1, l2, modulus, dot"):
            function("cosine", even, None, even)
        with pytest.raises(ValueError, match="dot takes neither"):
            function("dot", even, even, even)
        with pytest.raises(ValueError, match="an even number of features: 3"):
            function("modulus", odd, None, odd)
    with pytest.raises(ValueError, match="dot takes neither"):
        module.score_candidates("dot", even, None, even, None, even)
    with pytest.raises(ValueError, match="ids must be None"):
        module.score_candidates("l1", even, even, even, ids, even)
    with pytest.raises(ValueError, match="unknown"):
        module.count_above(RankingBatch("cosine", even, None, even[:, 0], ids, ids, ids, ids), even, 0)


@pytest.mark.parametrize("num_features", [1, 3, 8, 200, 600])
def test_a_stable_product_does_not_depend_on_order_or_place(num_features):
    """Reference: float64. Features in another order, and rows alone, give the same bits."""
    random = torch.Generator().manual_seed(0)
    rows, matrix = torch.randn(23, num_features, generator=random), torch.randn(num_features, 7, generator=random)
    product = stable_product(rows, matrix)
    torch.testing.assert_close(product.double(), rows.double() @ matrix.double(), atol=1e-4, rtol=1e-5)
    order = torch.randperm(num_features, generator=random)
    assert torch.equal(stable_product(rows[:, order], matrix[order]), product)
    assert torch.equal(torch.cat([stable_product(row[None], matrix) for row in rows]), product)
    rows[1], rows[2, 0], rows[3] = 0, torch.nan, 1e-40
    product = stable_product(rows, matrix)
    assert torch.equal(product[1], torch.zeros(7))
    assert product[2].isnan().all()
    assert product[[0, 3]].isfinite().all()
