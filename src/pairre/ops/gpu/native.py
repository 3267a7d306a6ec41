"""Kernels in CUDA C++ (`native.cu`) for the comparisons that are bound by arithmetic, compiled on demand with NVRTC.

B queries q and scales w [B, D], N candidates c [N, D], all float32 and contiguous. A score is −Σ |q − w c| over the D
features. Results are the same bit for bit from run to run, and every score that is not split over D (`parts` of 1) is
the same whichever function computes it. All launches go to the current stream and may be captured in a graph, once
each function has run before with such shapes (that compiles it).
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

_log = logging.getLogger("pairre")


# ------------------------------------------------------------------------------------------- compiling and launching


class _Attribute(ctypes.Structure):  # CUlaunchAttribute; a cluster's size is number 4
    _fields_ = [("number", ctypes.c_int), ("gap", ctypes.c_int), ("value", ctypes.c_uint * 16)]


class _Launch(ctypes.Structure):  # CUlaunchConfig
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("num_attributes", ctypes.c_uint),
    ]


def _check(result: int) -> None:
    if result:
        raise RuntimeError(f"CUDA driver error {result}")


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


@functools.cache
def _compiler() -> ctypes.CDLL:
    """NVRTC: that of PyTorch, which has loaded it where it came with it, or one from the system's paths."""
    major = (torch.version.cuda or "").split(".")[0]
    if os.name == "nt":
        return ctypes.CDLL(f"nvrtc64_{major}0_0.dll")
    try:
        return ctypes.CDLL(f"libnvrtc.so.{major}")
    except OSError:
        roots = [Path(torch.__file__).parents[1] / "nvidia", Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))]
        found = [path for root in roots for path in sorted(root.glob(f"**/libnvrtc.so.{major}"))]
        if not found:
            raise
        for path in sorted(found[0].parent.glob("libnvrtc-builtins.so.*")):
            ctypes.CDLL(str(path))
        return ctypes.CDLL(str(found[0]))


@functools.cache
def _compiled(name: str, capability: tuple[int, int]) -> tuple[bytes, bytes]:
    """Machine code of one kernel, an instance of a template of `native.cu`, and its symbol."""
    nvrtc, program, size, symbol = _compiler(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_char_p()
    source = Path(__file__).with_name("native.cu").read_bytes()
    options = [b"--gpu-architecture=sm_%d%d" % capability, b"--std=c++17"]
    steps = [
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"native.cu", 0, None, None),
        nvrtc.nvrtcAddNameExpression(program, name.encode()),
        nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)),
    ]
    if any(steps):
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value + 1)
        nvrtc.nvrtcGetProgramLog(program, text)
        raise RuntimeError(f"NVRTC: {steps} {text.value.decode()}")
    _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    code = ctypes.create_string_buffer(size.value)
    _check(nvrtc.nvrtcGetCUBIN(program, code))
    _check(nvrtc.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(symbol)))
    result = code.raw, symbol.value or b""
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return result


@functools.cache
def _function(name: str, device: int, shared: int) -> ctypes.c_void_p:
    """A kernel on the current device, allowed so many bytes of shared memory."""
    code, symbol = _compiled(name, torch.cuda.get_device_capability(device))
    torch.cuda.current_stream(device).query()  # a context exists
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(_driver().cuModuleLoadData(ctypes.byref(module), code))
    _check(_driver().cuModuleGetFunction(ctypes.byref(function), module, symbol))
    _check(_driver().cuFuncSetAttribute(function, 8, shared))  # most dynamic shared memory
    return function


def _launch(
    name: str, grid: tuple[int, ...], threads: int, arguments: list[Tensor | int], shared: int = 0, cluster: int = 1
) -> None:
    """Runs a kernel on the arguments' device; `cluster` blocks along z share their memory."""
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    assert all(t.is_cuda and t.is_contiguous() for t in tensors)
    device = tensors[0].get_device()
    values = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else ctypes.c_int(a) for a in arguments]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    attribute = _Attribute(4, 0, (1, 1, cluster))
    with torch.cuda.device(device):
        function = _function(name, device, shared)
        launch = _Launch(
            (*grid, *(1,) * (3 - len(grid))),
            (threads, 1, 1),
            shared,
            torch.cuda.current_stream().cuda_stream,
            ctypes.pointer(attribute),
            int(cluster > 1),
        )
        _check(_driver().cuLaunchKernelEx(ctypes.byref(launch), function, pointers, None))


@functools.cache
def available() -> bool:
    """Whether these kernels can be compiled and loaded here."""
    if os.environ.get("TRITON_INTERPRET") or torch.version.cuda is None or not torch.cuda.is_available():
        return False
    device = torch.cuda.current_device()
    if torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        with torch.cuda.device(device):
            _function("true_scores", device, 0)
    except (OSError, RuntimeError, AttributeError) as error:
        _log.warning("CUDA kernels cannot be compiled (%s); Triton's are used", error)
        return False
    return True


# ---------------------------------------------------------------------------------------------------------- kernels


class _Tile(NamedTuple):
    """A block's share of the scores: template arguments of `scores` and `count_above`."""

    rows: int
    cols: int
    thread_rows: int
    thread_cols: int
    depth: int
    unroll: int
    blocks: int  # that fit a multiprocessor, as the register budget

    @property
    def threads(self) -> int:
        return self.rows // self.thread_rows * (self.cols // self.thread_cols)

    def shared(self, cluster: int = 1) -> int:
        buffers = 2 * self.depth * (2 * (self.rows + 4) + self.cols + 4)
        return 4 * max(buffers, self.rows * (self.cols + 4) if cluster > 1 else 0)

    def kernel(self, name: str) -> str:
        return f"{name}<{','.join(map(str, self))}>"


class _Strip(NamedTuple):
    """A block's share of the gradients: template arguments of `gradients`."""

    features: int  # of a thread
    candidates: int  # of a thread
    warps: int
    queries: int  # at a time
    blocks: int

    def shared(self) -> int:
        return 8 * self.queries * (self.candidates * self.warps + 64 * self.features * (1 + self.warps))

    def kernel(self) -> str:
        return f"gradients<{','.join(map(str, self))}>"


_LARGE = _Tile(128, 128, 8, 16, 16, 2, 2)
_MEDIUM = _Tile(64, 128, 8, 8, 16, 4, 2)
_SMALL = _Tile(32, 64, 8, 8, 16, 4, 8)
_WIDE_STRIP = _Strip(2, 32, 8, 8, 1)
_STRIP = _Strip(1, 32, 4, 8, 4)


def _blocks(number: int, size: int) -> int:
    return -(-number // size)


@functools.cache
def _processors(device: int) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _add_parts(*lists: tuple[Tensor, Tensor]) -> None:
    """Into the second of each pair (two pairs at most), the sum of the first over its leading dimension."""
    if lists:
        arguments: list[Tensor | int] = []
        for parts, total in lists:
            arguments += [parts, total, len(parts), total.numel()]
        if len(lists) == 1:
            arguments += [*lists[0], 0, 0]
        size = sum(total.numel() for _, total in lists)
        assert size < 2**31
        _launch("add_parts", (_blocks(size, 256),), 256, arguments)


def _scores(q: Tensor, w: Tensor, c: Tensor, tile: _Tile, parts: int, cluster: int) -> Tensor:
    """With parts that are added in clusters of so many, and the clusters' afterwards."""
    (num_q, dim), num_c = q.shape, len(c)
    out = torch.empty(parts // cluster, num_q, num_c, device=q.device)
    grid = (_blocks(num_c, tile.cols), _blocks(num_q, tile.rows), parts)
    chunk = dim if parts == 1 else _blocks(dim, 8 * parts) * 8
    arguments: list[Tensor | int] = [q, w, c, out, num_q, num_c, dim, chunk]
    _launch(tile.kernel("scores"), grid, tile.threads, arguments, tile.shared(cluster), cluster)
    if len(out) == 1:
        return out[0]
    total = torch.empty_like(out[0])
    _add_parts((out, total))
    return total


@functools.lru_cache(1024)
def _score_plan(num_q: int, num_c: int, dim: int, split: bool, device: int) -> tuple[_Tile, int, int]:
    """Tile, parts and cluster size."""
    processors = _processors(device)
    clusters = torch.cuda.get_device_capability(device) >= (9, 0)
    for tile in (_LARGE, _MEDIUM, _SMALL) if not split else (_MEDIUM, _SMALL):
        blocks = _blocks(num_q, tile.rows) * _blocks(num_c, tile.cols)
        if blocks >= processors * tile.blocks:
            return tile, 1, 1
        if split:
            parts = 1
            while parts < 8 and blocks * parts < processors * tile.blocks * 3 // 4 and dim >= 32 * parts:
                parts *= 2
            if tile is _SMALL or blocks * parts >= processors * tile.blocks // 2:
                return tile, parts, parts if clusters else 1
    return _SMALL, 1, 1


def shared_scores(q: Tensor, w: Tensor, c: Tensor, parts: int | None) -> Tensor:
    """Scores [B, N]; each sum over D in so many parts, in as many as fill the GPU if None."""
    if len(q) == 0 or len(c) == 0:
        return torch.empty(len(q), len(c), device=q.device)
    tile, chosen, cluster = _score_plan(len(q), len(c), q.shape[1], parts is None, q.get_device())
    if parts is not None and parts > 1:
        chosen, cluster = parts, 1
    return _scores(q, w, c, tile, chosen, cluster)


@functools.lru_cache(1024)
def _chunks(num_q: int, strips: int, strip: _Strip, device: int) -> int:
    """Into how many chunks the queries go: whole waves of blocks, and not much to add up."""
    at_once = _processors(device) * strip.blocks

    def cost(chunks: int) -> float:
        queries = _blocks(_blocks(num_q, chunks), strip.queries) * strip.queries
        return _blocks(strips * chunks, at_once) * (queries + 6.0) + 0.2 * chunks

    return min(range(1, _blocks(num_q, strip.queries) + 1)[:256], key=cost)


def _gradients(
    q: Tensor, w: Tensor, c: Tensor, g: Tensor, strip: _Strip, chunks: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    (num_q, dim), num_c = q.shape, len(c)
    across = _blocks(dim, 32 * strip.features)
    tiles = _blocks(num_c, strip.candidates * strip.warps)
    if chunks is None:
        chunks = _chunks(num_q, across * tiles, strip, q.get_device())
    chunk = _blocks(num_q, chunks)
    chunks = _blocks(num_q, chunk)
    by_query, by_candidate = q.new_empty(tiles, 2, num_q, dim), q.new_empty(chunks, num_c, dim)
    arguments: list[Tensor | int] = [q, w, c, g, by_query, by_candidate, num_q, num_c, dim, chunk]
    _launch(strip.kernel(), (across, tiles, chunks), 32 * strip.warps, arguments, strip.shared())
    sums = [parts[0] if len(parts) == 1 else torch.empty_like(parts[0]) for parts in (by_query, by_candidate)]
    _add_parts(*(pair for pair in zip((by_query, by_candidate), sums, strict=True) if len(pair[0]) > 1))
    return sums[0][0], sums[0][1], sums[1]


def shared_gradients(q: Tensor, w: Tensor, c: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, w and c, given those of the scores, g [B, N]; at 0, |x| has the slope its sign bit says."""
    if len(q) == 0 or len(c) == 0:
        return torch.zeros_like(q), torch.zeros_like(w), torch.zeros_like(c)
    return _gradients(q, w, c, g, _WIDE_STRIP if len(c) > 128 else _STRIP, None)


def _count_above(tile: _Tile, q: Tensor, w: Tensor, c: Tensor, first: int, *others: Tensor) -> None:
    (num_q, dim), num_c = q.shape, len(c)
    down = _blocks(num_q, tile.rows)
    grid = (min(down, 16), _blocks(num_c, tile.cols), _blocks(down, 16))
    arguments: list[Tensor | int] = [q, w, c, *others, num_q, num_c, dim, first]
    _launch(tile.kernel("count_above"), grid, tile.threads, arguments, tile.shared())


def count_above(
    q: Tensor,
    w: Tensor,
    c: Tensor,
    true: Tensor,
    begin: Tensor,
    end: Tensor,
    members: Tensor,
    own: Tensor,
    first: int,
    higher: Tensor,
    equal: Tensor,
) -> None:
    """Adds to higher and equal [B] how many candidates score above `true` [B] and the same; nothing of B × N is stored.

    Candidate n is entity first + n. Left out are entities own[b] and members[begin[b]:end[b]], which ascend.
    Members are int32; begin, end, own, higher and equal are int64.
    """
    assert members.dtype == torch.int32
    assert all(t.dtype == torch.int64 and t.shape == true.shape for t in (begin, end, own, higher, equal))
    if len(q) and len(c):
        _count_above(_LARGE, q, w, c, first, true, begin, end, members, own, higher, equal)


def true_scores(q: Tensor, w: Tensor, c: Tensor) -> Tensor:
    """The score [B] of each query with the candidate of the same row, c [B, D]."""
    out = torch.empty(len(q), device=q.device)
    if len(q):
        _launch("true_scores", (_blocks(len(q), 32),), 32, [q, w, c, out, len(q), q.shape[1]])
    return out
