"""The CUDA C++ kernels without a GPU: their own source, compiled for the CPU, against plain sums in float64."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
SHAPES = [(1, 1, 1), (5, 9, 40), (33, 35, 17), (40, 65, 32)]  # queries, candidates, features


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    """The kernels as functions of numpy arrays and numbers."""
    if sys.platform != "linux" or not shutil.which("g++"):
        pytest.skip("needs g++ on Linux")
    library = tmp_path_factory.mktemp("native") / "native.so"
    source = f'-DNATIVE="{ROOT / "src/pairre/ops/gpu/native.cu"}"'
    options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", "-w", source, "-o", str(library)]
    subprocess.run(["g++", *options, str(ROOT / "tests/native_on_cpu.cpp")], check=True)
    loaded = ctypes.CDLL(str(library))

    def call(name, *arguments):
        given = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else ctypes.c_int(a) for a in arguments]
        getattr(loaded, f"run_{name}")(*given)

    return call


def tables(num_queries, num_candidates, dim):
    """Queries, scales and candidates, and x = q − w c for every pair and feature in float64."""
    random = np.random.default_rng(0)
    q, w, c = (random.normal(size=(n, dim)).astype(np.float32) for n in (num_queries, num_queries, num_candidates))
    return q, w, c, q[:, None].astype(float) - w[:, None].astype(float) * c[None]


def nothing(*shape):
    return np.full(shape, np.nan, np.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunk", [16, 64])
def test_scores(native, shape, chunk):
    q, w, c, x = tables(*shape)
    out = nothing(-(-shape[2] // chunk), *shape[:2])
    native("scores", q, w, c, out, *shape, chunk)
    np.testing.assert_allclose(out.sum(0), -np.abs(x).sum(2), rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_counts(native, shape):
    """Candidates above and as the true one, some left out, some equal to the bit; entities are numbered from 3."""
    (num_queries, num_candidates, dim), first = shape, 3
    q, w, c, _ = tables(*shape)
    c[num_candidates // 2] = c[0]
    scores, true = nothing(1, num_queries, num_candidates), nothing(num_queries)
    native("scores", q, w, c, scores, *shape, dim)
    answer = np.arange(num_queries) % num_candidates
    native("true_scores", q, w, c[answer], true, num_queries, dim)
    assert np.array_equal(true, scores[0][np.arange(num_queries), answer])  # the same bits
    left_out = [sorted({(5 * b + k) % num_candidates for k in range(b % 4)}) for b in range(num_queries)]
    ends = np.cumsum([0, *map(len, left_out)])
    members = np.array([first + n for ids in left_out for n in ids] or [0], np.int32)
    higher, equal = np.zeros(num_queries, np.int64), np.zeros(num_queries, np.int64)
    lists = (ends[:-1].copy(), ends[1:].copy(), members, answer + first, higher, equal)
    native("count_above", q, w, c, true, *lists, *shape, first)
    for b in range(num_queries):
        seen = np.delete(scores[0, b], [*left_out[b], answer[b]])
        assert (higher[b], equal[b]) == ((seen > true[b]).sum(), (seen == true[b]).sum())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunk", [7, 64])
def test_gradients(native, shape, chunk):
    num_queries, num_candidates, dim = shape
    q, w, c, x = tables(*shape)
    g = np.random.default_rng(1).normal(size=shape[:2]).astype(np.float32)
    dqw = nothing(-(-num_candidates // 8), 2, num_queries, dim)
    dc = nothing(-(-num_queries // chunk), num_candidates, dim)
    native("gradients", q, w, c, g, dqw, dc, *shape, chunk)
    slope = g[..., None] * np.sign(x)
    for found, expected in (
        (dqw[:, 0], -slope.sum(1)),
        (dqw[:, 1], (slope * c[None]).sum(1)),
        (dc, (slope * w[:, None]).sum(0)),
    ):
        np.testing.assert_allclose(found.sum(0), expected, rtol=1e-4, atol=1e-5)


def test_parts_are_added(native):
    lists = [np.random.default_rng(n).normal(size=(n, 300 * n)).astype(np.float32) for n in (1, 3)]
    sums = [nothing(parts.shape[1]) for parts in lists]
    arguments = [a for parts, total in zip(lists, sums, strict=True) for a in (parts, total, *parts.shape)]
    native("add_parts", *arguments)
    for parts, total in zip(lists, sums, strict=True):
        np.testing.assert_allclose(total, parts.sum(0), rtol=1e-5, atol=1e-6)
