"""The CUDA C++ kernels without a GPU: their own source, compiled for the CPU, as `native.py` launches it."""

import ctypes
import functools
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pairre.kernels.reference import scores as reference
from pairre.kernels.reference.ranks import RankingBatch

pytest.importorskip("triton")  # of the package that these kernels are in
from pairre.kernels.cuda import native, scores

ROOT = Path(__file__).parents[2]
SHAPES = [(1, 1, 1), (5, 9, 40), (33, 35, 17), (130, 140, 33)]  # queries, candidates, features
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="needs g++ on Linux"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs the kernels themselves, in test_scores.py"),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """An instance of a kernel by name, as a function of a grid, a number of threads and pointers to arguments."""

    @functools.cache
    def compile_(name):
        library = tmp_path_factory.mktemp("native") / "native.so"
        defined = [f'-DNATIVE="{ROOT / "src/pairre/kernels/cuda/native.cu"}"', f"-DKERNEL={name}"]
        options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", "-w", *defined, "-o", str(library)]
        subprocess.run(["g++", *options, str(ROOT / "tests/kernels/native_on_cpu.cpp")], check=True)
        return ctypes.CDLL(str(library)).run

    return compile_


@pytest.fixture(autouse=True)
def on_cpu(compiled, monkeypatch):
    """`native` with a GPU of four multiprocessors that is none."""

    def launch(name, grid, threads, shared, *arguments):
        assert all(a.is_contiguous() for a in arguments if isinstance(a, torch.Tensor))
        given = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_int(a) for a in arguments]
        compiled(name)(*grid, threads, (ctypes.c_void_p * len(given))(*map(ctypes.addressof, given)))

    monkeypatch.setattr(native, "_launch", launch)
    monkeypatch.setattr(native, "_processors", lambda _: 4)


def tables(num_queries, num_candidates, dim, weighted=False):
    """Queries, scales and candidates, and perhaps weights of the candidates."""
    random, sizes = torch.Generator().manual_seed(0), (num_queries, num_queries, *[num_candidates] * (1 + weighted))
    return [torch.randn(n, dim, generator=random) for n in sizes]


def expected(*given):
    q, w, c, *r = (table.double() for table in given)
    return reference.score_candidates("l1", q, w, c, None, *r)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parts", [None, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_scores(shape, parts, weighted):
    q, w, c, *r = given = tables(*shape, weighted)
    found = native.shared_scores(q, w, c, parts, *r)
    torch.testing.assert_close(found.double(), expected(*given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients(shape, weighted):
    given = [table.requires_grad_() for table in tables(*shape, weighted)]
    upstream = torch.randn(shape[:2], generator=torch.Generator().manual_seed(1))
    wanted = torch.autograd.grad(expected(*given), given, upstream.double())
    q, w, c, *r = (table.detach() for table in given)
    found = native.shared_gradients(q, w, c, upstream, *r)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_counts(shape):
    """Candidates above and as the true one, some left out, some equal to the bit; entities are numbered from 3."""
    (num_queries, num_candidates, _), first = shape, 3
    q, w, c = tables(*shape)
    c[num_candidates // 2] = c[0]
    answer = torch.arange(num_queries) % num_candidates
    scores, true = native.shared_scores(q, w, c, 1), native.true_scores(q, w, c[answer])
    assert torch.equal(true, scores.gather(1, answer[:, None])[:, 0])  # the same bits
    left_out = [sorted({(5 * b + k) % num_candidates for k in range(b % 4)}) for b in range(num_queries)]
    ends = torch.tensor([0, *map(len, left_out)]).cumsum(0)
    members = torch.tensor([first + n for ids in left_out for n in ids], dtype=torch.int32)
    higher, equal = torch.zeros(2, num_queries, dtype=torch.int64)
    native.count_above(q, w, c, true, ends[:-1], ends[1:], members, answer + first, first, higher, equal)
    for b in range(num_queries):
        scores[b, [*left_out[b], answer[b]]] = -torch.inf
    assert torch.equal(higher, (scores > true[:, None]).sum(1))
    assert torch.equal(equal, (scores == true[:, None]).sum(1))


@pytest.mark.parametrize("shape", [*SHAPES, (40, 150, 300)])
@pytest.mark.parametrize("most", [10**5, 3])
def test_pairs_above_a_threshold(shape, most):
    """Without scales, a candidate twice; a tile that is given up early; room for all of them, or for any that fit."""
    q, _, c = tables(*shape)
    c[128:] += 10
    c[shape[1] // 2] = c[0]
    scores = native.shared_scores(q, torch.ones_like(q), c, 1)  # a product by one rounds nothing: the same bits
    threshold = scores.flatten().quantile(0.9, interpolation="nearest").reshape(1)
    row, column = torch.full((2, most), -1, dtype=torch.int32)
    score, num = torch.zeros(most), torch.zeros(1, dtype=torch.int64)
    native.collect_above(q, c, threshold, row, column, score, num)
    wanted = {(m, n, scores[m, n].item()) for m, n in (scores >= threshold).nonzero().tolist()}
    held = min(most, len(wanted))
    found = list(zip(row[:held].tolist(), column[:held].tolist(), score[:held].tolist(), strict=True))
    assert num.item() == len(wanted)
    assert set(found) <= wanted
    assert len(set(found)) == held
    assert (row[held:] == -1).all()


@pytest.mark.parametrize("damage", [lambda data: data[:10], lambda data: b"", lambda data: data[:-1] + b"?"])
def test_a_damaged_kernel_in_the_cache_is_compiled_again(tmp_path, monkeypatch, damage):
    made = []
    monkeypatch.setenv("PAIRRE_CACHE", str(tmp_path))
    monkeypatch.setattr(native, "_compiler", lambda: SimpleNamespace(nvrtcVersion=lambda *_: 0))
    monkeypatch.setattr(native, "_compile", lambda *_: made.append(1) or b"symbol\0code")

    def compiled():
        assert native._compiled.__wrapped__("scores", (9, 0)) == b"symbol\0code"
        return len(made)

    assert (compiled(), compiled()) == (1, 1)
    (file,) = (tmp_path / "kernels").iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert (compiled(), compiled()) == (2, 2)


@pytest.mark.parametrize("shape", SHAPES)
def test_transe_is_ranked_by_the_kernels_of_pairre(shape, monkeypatch):
    """An L1 without a scale gets one of ones; in training and in half precision Triton has it, as it always had."""
    monkeypatch.setattr(native, "available", lambda: True)
    to_triton = []
    for name in ("triton_score_candidates", "triton_true_scores"):
        monkeypatch.setattr(scores, name, lambda *arguments: to_triton.append(arguments))
    q, _, c = tables(*shape)
    true = scores.true_scores("l1", q, None, c[:1].expand_as(q))
    found = scores.score_candidates("l1", q, None, c)
    torch.testing.assert_close(found, reference.score_candidates("l1", q, None, c), rtol=1e-5, atol=1e-5)
    assert torch.equal(found[:, 0], true)
    nobody, none = torch.full((len(q),), -1), torch.zeros(len(q), dtype=torch.int64)
    batch = RankingBatch("l1", q, None, true, nobody, none, none, torch.zeros(1, dtype=torch.int32))
    higher, equal = scores.count_above(batch, c, 0)
    assert torch.equal(higher, (found > true[:, None]).sum(1))
    assert torch.equal(equal, (found == true[:, None]).sum(1))
    assert not to_triton
    scores.score_candidates("l1", q.requires_grad_(), None, c)
    scores.true_scores("l1", q.detach(), None, c[:1].expand_as(q).half())
    assert [arguments[2] for arguments in to_triton] == [None, None]
