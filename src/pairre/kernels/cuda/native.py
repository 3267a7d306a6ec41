"""Kernels in CUDA C++ (`native.cu`) for the comparisons that are bound by arithmetic, compiled on demand with NVRTC.

B queries q and scales w [B, D], N candidates c [N, D], all float32 and contiguous. A score is −Σ |q − w c| over the D
features, or where candidates have weights r [N, D], −Σ |q r − w c|. Results are the same bit for bit from run to run,
and every score that is not split over D (`parts` of 1) is the same whichever function computes it. All launches go to
the current stream and may be captured in a graph, once each function has run before with such shapes, which compiles
it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from pairre.support.files import cache_folder

_log = logging.getLogger("pairre")
_DIGEST = hashlib.sha256().digest_size  # bytes before a kernel in its file


# ------------------------------------------------------------------------------------------- compiling and launching


def _check(result: int) -> None:
    if result:
        raise RuntimeError(f"CUDA error {result}")


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


@functools.cache
def _compiler() -> ctypes.CDLL:
    """Return NVRTC: that of PyTorch, which has loaded it where it came with it, or one from the system's paths."""
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


def _compile(source: bytes, name: bytes, options: list[bytes]) -> bytes:
    """Return the symbol of one kernel, a zero byte and its machine code."""
    nvrtc, program, size, symbol = _compiler(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_char_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"native.cu", 0, None, None))
    _check(nvrtc.nvrtcAddNameExpression(program, name))
    if nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value + 1)
        nvrtc.nvrtcGetProgramLog(program, text)
        raise RuntimeError(f"NVRTC: {text.value.decode()}")
    _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    code = ctypes.create_string_buffer(size.value)
    _check(nvrtc.nvrtcGetCUBIN(program, code))
    _check(nvrtc.nvrtcGetLoweredName(program, name, ctypes.byref(symbol)))
    result = (symbol.value or b"") + b"\0" + code.raw
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return result


@functools.cache
def _compiled(name: str, capability: tuple[int, int]) -> bytes:
    """Return one kernel, an instance of a template of `native.cu`, as `_compile` returns it; cached by its checksum."""
    source = Path(__file__).with_name("native.cu").read_bytes()
    options = [b"--gpu-architecture=sm_%d%d" % capability, b"--std=c++17"]
    version = (ctypes.c_int * 2)()
    _check(_compiler().nvrtcVersion(ctypes.byref(version, 0), ctypes.byref(version, 4)))
    key = hashlib.sha256(repr((source, options, name, *version)).encode()).hexdigest()
    path = cache_folder() / "kernels" / key
    with contextlib.suppress(OSError):
        stored = path.read_bytes()
        if hashlib.sha256(stored[_DIGEST:]).digest() == stored[:_DIGEST]:
            return stored[_DIGEST:]
    result = _compile(source, name.encode(), options)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(hashlib.sha256(result).digest() + result)
        temporary.replace(path)
    return result


@functools.cache
def _context(device: int) -> ctypes.c_void_p:
    """Return the context PyTorch uses, which a thread of its own may not have made its current one."""
    context = ctypes.c_void_p()
    _check(_driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    return context


@functools.cache
def _function(name: str, device: int, shared: int) -> ctypes.c_void_p:
    """Return a kernel on the current device, allowed so many bytes of shared memory."""
    symbol, _, code = _compiled(name, torch.cuda.get_device_capability(device)).partition(b"\0")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(_driver().cuModuleLoadData(ctypes.byref(module), code))
    _check(_driver().cuModuleGetFunction(ctypes.byref(function), module, symbol))
    _check(_driver().cuFuncSetAttribute(function, 8, shared))  # most dynamic shared memory
    return function


def _launch(name: str, grid: tuple[int, int, int], threads: int, shared: int, *arguments: Tensor | int) -> None:
    """Run a kernel on the device and the current stream of its arguments."""
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    assert all(t.is_cuda and t.is_contiguous() for t in tensors)
    device = tensors[0].get_device()
    values = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else ctypes.c_int(a) for a in arguments]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    with torch.cuda.device(device):
        _check(_driver().cuCtxSetCurrent(_context(device)))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        function = _function(name, device, shared)
        _check(_driver().cuLaunchKernel(function, *grid, threads, 1, 1, shared, stream, pointers, None))


@functools.cache
def available() -> bool:
    """Return whether these kernels can be compiled and loaded here."""
    if os.environ.get("TRITON_INTERPRET", "0") != "0" or torch.version.cuda is None or not torch.cuda.is_available():
        return False
    try:
        if torch.cuda.get_device_capability() < (8, 0):
            return False
        row = torch.zeros(1, 1, device="cuda")
        true_scores(row, row, row)
    except (OSError, RuntimeError, AttributeError) as error:
        _log.warning("CUDA kernels cannot be compiled (%s); Triton's are used", error)
        return False
    return True


# ---------------------------------------------------------------------------------------------------------- kernels


class _Tile(NamedTuple):
    """A block's share of the scores: template arguments of `scores`, `count_above` and `collect_above`."""

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

    def shared(self, weighted: bool = False, scaled: bool = True) -> int:
        return 8 * self.depth * ((1 + scaled) * (self.rows + 4) + (1 + weighted) * (self.cols + 4))


class _Strip(NamedTuple):
    """A block's share of the gradients: template arguments of `gradients`."""

    features: int  # of a thread
    candidates: int  # of a thread
    warps: int
    queries: int  # at a time
    blocks: int

    @property
    def shared(self) -> int:
        return 8 * self.queries * (self.candidates * self.warps + 64 * self.features * (1 + self.warps))


_LARGE = _Tile(128, 128, 8, 16, 16, 4, 2)
_MEDIUM = _Tile(64, 128, 8, 8, 16, 4, 3)
_SMALL = _Tile(64, 64, 4, 8, 16, 4, 6)
_TINY = _Tile(32, 32, 4, 4, 16, 16, 8)
_WIDE_STRIP = _Strip(1, 32, 8, 16, 2)
_STRIP = _Strip(1, 16, 8, 8, 2)  # also where candidates have weights, which take registers, too


def _kernel(name: str, shape: _Tile | _Strip, *flags: bool) -> str:
    return f"{name}<{','.join(str(value).lower() for value in (*shape, *flags))}>"


def _blocks(number: int, size: int) -> int:
    return -(-number // size)


@functools.cache
def _processors(device: int) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _add_parts(*lists: tuple[Tensor, Tensor]) -> None:
    """Into the second of each pair (two pairs at most), the sum of the first over its leading dimension."""
    arguments: list[Tensor | int] = []
    for parts, total in lists:
        arguments += [parts, total, len(parts), total.numel()]
    size = sum(total.numel() for _, total in lists)
    assert size < 2**31
    if lists:
        _launch("add_parts", (_blocks(size, 256), 1, 1), 256, 0, *arguments, *(*lists[0], 0, 0)[: 8 - len(arguments)])


def _scores(q: Tensor, w: Tensor, c: Tensor, tile: _Tile, parts: int, r: Tensor | None = None) -> Tensor:
    (num_q, dim), num_c = q.shape, len(c)
    chunk = dim if parts == 1 else _blocks(dim, 16 * parts) * 16
    out = q.new_empty(max(_blocks(dim, max(chunk, 1)), 1), num_q, num_c)
    grid = _blocks(num_c, tile.cols), _blocks(num_q, tile.rows), len(out)
    name, tables = _kernel("scores", tile, r is not None), (q, w, c, c if r is None else r, out)
    _launch(name, grid, tile.threads, tile.shared(r is not None), *tables, num_q, num_c, dim, chunk)
    if len(out) == 1:
        return out[0]
    total = torch.empty_like(out[0])
    _add_parts((out, total))
    return total


@functools.lru_cache(1024)
def _score_plan(num_q: int, num_c: int, dim: int, split: bool, device: int) -> tuple[_Tile, int]:
    """Tile and parts: the largest tile whose blocks occupy half of the GPU, a split at most in parts of 32 features."""
    for tile in (_MEDIUM, _SMALL) if split else (_LARGE, _MEDIUM, _SMALL):
        blocks, room = _blocks(num_q, tile.rows) * _blocks(num_c, tile.cols), _processors(device) * tile.blocks
        parts = max(1, min(16, _blocks(dim, 32), room // blocks)) if split else 1
        if 2 * blocks * parts >= room or (split and tile is _SMALL):
            return tile, parts
    return _TINY, 1


def shared_scores(q: Tensor, w: Tensor, c: Tensor, parts: int | None, r: Tensor | None = None) -> Tensor:
    """Scores [B, N]; each sum over D in so many parts, in as many as fill the GPU if None."""
    if len(q) == 0 or len(c) == 0:
        return q.new_empty(len(q), len(c))
    tile, chosen = _score_plan(len(q), len(c), q.shape[1], parts is None, q.get_device())
    return _scores(q, w, c, tile, parts or chosen, r)


@functools.lru_cache(1024)
def _chunks(num_q: int, strips: int, strip: _Strip, device: int) -> int:
    """Into how many chunks the queries go: whole waves of blocks, and not much to add up."""
    at_once = _processors(device) * strip.blocks

    def cost(chunks: int) -> float:
        queries = _blocks(_blocks(num_q, chunks), strip.queries) * strip.queries
        return _blocks(strips * chunks, at_once) * (queries + 6.0) + 0.6 * chunks

    return min(range(1, _blocks(num_q, strip.queries) + 1)[:256], key=cost)


def _gradients(
    q: Tensor, w: Tensor, c: Tensor, g: Tensor, strip: _Strip, chunks: int | None, r: Tensor | None = None
) -> tuple[Tensor, ...]:
    (num_q, dim), num_c = q.shape, len(c)
    assert max(2 * num_q * dim, 2 * num_c * dim, num_q * num_c) < 2**31
    across, tiles = _blocks(dim, 32 * strip.features), _blocks(num_c, strip.candidates * strip.warps)
    if chunks is None:
        chunks = _chunks(num_q, across * tiles, strip, q.get_device())
    chunk = _blocks(num_q, chunks)
    grid = across, tiles, _blocks(num_q, chunk)
    parts = q.new_empty(tiles, 2, num_q, dim), q.new_empty(grid[2], 1 if r is None else 2, num_c, dim)
    sizes = num_q, num_c, dim, chunk
    name, tables = _kernel("gradients", strip, r is not None), (q, w, c, c if r is None else r, g, *parts)
    _launch(name, grid, 32 * strip.warps, strip.shared, *tables, *sizes)
    sums = [p[0] if len(p) == 1 else torch.empty_like(p[0]) for p in parts]
    _add_parts(*((p, total) for p, total in zip(parts, sums, strict=True) if len(p) > 1))
    return *sums[0], *sums[1]


def shared_gradients(q: Tensor, w: Tensor, c: Tensor, g: Tensor, r: Tensor | None = None) -> tuple[Tensor, ...]:
    """Gradients of q, w, c and any r; g [B, N] are those of scores. At 0, |x| has the slope its sign bit says."""
    if len(q) == 0 or len(c) == 0:
        return tuple(torch.zeros_like(table) for table in (q, w, c, r) if table is not None)
    return _gradients(q, w, c, g, _WIDE_STRIP if len(c) > 128 and r is None else _STRIP, None, r)


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
    """Add to higher and equal [B] how many candidates score above `true` [B] and the same; nothing of B × N is stored.

    Candidate n is entity first + n. Left out are entities own[b] and members[begin[b]:end[b]], which ascend.
    Members are int32; begin, end, own, higher and equal are int64.
    """
    assert members.dtype == torch.int32
    assert all(t.dtype == torch.int64 and t.shape == true.shape for t in (begin, end, own, higher, equal))
    if len(q) and len(c):
        down, lists = _blocks(len(q), _LARGE.rows), (true, begin, end, members, own, higher, equal)
        grid = min(down, 16), _blocks(len(c), _LARGE.cols), _blocks(down, 16)
        name, sizes = _kernel("count_above", _LARGE), (len(q), len(c), q.shape[1], first)
        _launch(name, grid, _LARGE.threads, _LARGE.shared(), q, w, c, *lists, *sizes)


def collect_above(
    q: Tensor, c: Tensor, threshold: Tensor, row: Tensor, column: Tensor, score: Tensor, num: Tensor
) -> None:
    """Write the pairs that score at least `threshold` [1] to row, column and score [M], and add to `num` [1] how many.

    A score is −Σ |q − c|. If there are more than M pairs, any M of them are written. Row and column are int32, and
    the number is int64.
    """
    assert row.dtype == column.dtype == torch.int32
    assert num.dtype == torch.int64
    down, found = _blocks(len(q), _LARGE.rows), (threshold, row, column, score, num)
    grid = min(down, 16), _blocks(len(c), _LARGE.cols), _blocks(down, 16)
    sizes, shared = (len(q), len(c), q.shape[1], len(row)), _LARGE.shared(scaled=False)
    _launch(_kernel("collect_above", _LARGE), grid, _LARGE.threads, shared, q, c, *found, *sizes)


def true_scores(q: Tensor, w: Tensor, c: Tensor) -> Tensor:
    """Return the score [B] of each query with the candidate of the same row, c [B, D]."""
    out = torch.empty(len(q), device=q.device)
    if len(q):
        _launch("true_scores", (_blocks(len(q), 32), 1, 1), 32, 0, q, w, c, out, len(q), q.shape[1])
    return out
