"""What a GPU can do, measured, and how kernels are timed and held against it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pairre.kernels.cuda import CudaBackend, native

gpu = CudaBackend()
DEVICE = "cuda:0"
LATENCY = 0.3  # below this share of both ceilings

# ----------------------------------------------------------------------------------------------------------- ceilings

CEILING = r"""
#define FOR(i, end) _Pragma("unroll") for (int i = 0; i < (end); i++)

template <int MIX> __global__ void __launch_bounds__(256, 2) ceiling(const float *in, float *out, int rounds) {
    in += threadIdx.x % 32;
    float x[16], y[16], acc[32], a[4], b[4], p = in[0], t = in[32], u = in[64], sum = 0, dot = 0;
    FOR(i, 16) x[i] = in[(i + 3) * 32], y[i] = in[(i + 19) * 32];
    FOR(i, 32) acc[i] = in[(i + 35) * 32];
    FOR(i, 4) a[i] = in[(i + 67) * 32], b[i] = in[(i + 71) * 32];
#pragma unroll 4
    for (int r = 0; r < rounds; r++) {
        if (MIX == 0) FOR(k, 2) FOR(i, 32) acc[i] = __fmaf_rn(acc[i], t, u);
        if (MIX == 1) {
            FOR(i, 4) a[i] += p;
            FOR(i, 4) FOR(j, 8) acc[i * 8 + j] += fabsf(__fmaf_rn(-b[i], x[j], a[i]));
        }
        if (MIX == 2) {
            t += p, u += p;
            float v[16];
            FOR(j, 16) {
                const unsigned sign = __float_as_uint(__fmaf_rn(-u, x[j], t)) & 0x80000000u;
                v[j] = __uint_as_float(__float_as_uint(y[j]) ^ sign);
            }
            FOR(j, 16) sum -= v[j];
            FOR(j, 16) dot = __fmaf_rn(v[j], x[j], dot);
            FOR(j, 16) acc[j] = __fmaf_rn(v[j], u, acc[j]);
        }
        if (MIX == 3) FOR(k, 2) FOR(i, 32) asm volatile("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(acc[i]));
    }
    FOR(i, 32) sum += acc[i];
    FOR(i, 4) sum += a[i];
    out[blockIdx.x * 256 + threadIdx.x] = sum + dot;
}
"""
MIXES = {  # template argument, instructions a round, what they are
    "issue": (0, 64, "FFMA, two of its operands always the same"),
    "forward": (1, 68, "FFMA, FADD"),
    "backward": (2, 82, "FFMA, LOP3, FADD, FFMA, FFMA"),
    "special": (3, 64, "MUFU"),
}
COPIES = {"copy": 2**30, "l2_copy": 2**23}  # bytes copied: the second reads and writes 16 MiB in all


def microseconds(call: Callable[[], object], rep: int) -> float:
    """Median of a call inside a graph of many; its stream does not wait for what filled the inputs, so we do."""
    from triton.testing import do_bench_cudagraph

    torch.cuda.synchronize()
    return 1e3 * float(do_bench_cudagraph(call, rep=rep, return_mode="median"))


def ceilings(rep: int) -> dict[str, dict[str, Any]]:
    """Return what the chip does a second, by name: lane instructions and bytes."""
    result: dict[str, dict[str, Any]] = {}
    library = native._compiled

    def compiled(name: str, capability: tuple[int, int]) -> bytes:
        if not name.startswith("ceiling"):
            return library(name, capability)
        options = [b"--gpu-architecture=sm_%d%d" % capability, b"--std=c++17"]
        return native._compile(CEILING.encode(), name.encode(), options)

    native._compiled = compiled
    try:
        processors, rounds = torch.cuda.get_device_properties(DEVICE).multi_processor_count, 2000
        source = torch.rand(75 * 32, device=DEVICE)
        out = torch.empty(2 * processors * 256, device=DEVICE)
        for name, (mix, count, what) in MIXES.items():
            launch = functools.partial(
                native._launch, f"ceiling<{mix}>", (2 * processors, 1, 1), 256, 0, source, out, rounds
            )
            rate = len(out) * rounds * count / microseconds(launch, rep) * 1e6
            result[name] = {"per_second": rate, "unit": "lane instructions", "what": what}
            result[name]["lanes_of_128_ghz"] = rate / processors / 128 / 1e9
    finally:
        native._compiled = library
    for name, length in COPIES.items():
        here, there = (torch.rand(length // 4, device=DEVICE) for _ in range(2))
        rate = 2 * length / microseconds(functools.partial(there.copy_, here), rep) * 1e6
        what = f"copy of {length // 2**20} MiB, read plus written"
        result[name] = {"per_second": rate, "unit": "bytes", "what": what}
    for name, value in result.items():
        print(f"{name:10s} {value['per_second'] / 1e12:7.2f} T {value['unit']} a second: {value['what']}", flush=True)
    return result


# -------------------------------------------------------------------------------------------------------- measurements


class Bench:
    """Times kernels and holds them against the ceilings; without ceilings it only runs each once, which compiles it."""

    def __init__(self, rates: dict[str, float] | None, rep: int = 0) -> None:
        self.rates, self.rep = rates, rep
        self.kernels: list[dict[str, Any]] = []

    def time(
        self,
        kernel: str,
        shape: Sequence[int],
        call: Callable[[], object],
        instructions: dict[str, float],
        elements: float,
        moved: float,
        note: str = "",
    ) -> float:
        """Microseconds of a call, NaN where it failed; `instructions` are those of an element, by ceiling."""
        try:
            if self.rates is None:
                call()
                return math.nan
            taken = microseconds(call, self.rep)
        except Exception as error:  # noqa: BLE001
            return self.fail(kernel, shape, error)
        self.record(kernel, shape, taken, instructions, elements, moved, note)
        return taken

    def fail(self, kernel: str, shape: Sequence[int], error: Exception) -> float:
        """Note an error instead of a time."""
        self.kernels.append({"kernel": kernel, "shape": list(shape), "error": repr(error)[:500]})
        print(f"{kernel:44s} {error!r:.300s}", flush=True)
        return math.nan

    def record(
        self,
        kernel: str,
        shape: Sequence[int],
        taken: float,
        instructions: dict[str, float],
        elements: float,
        moved: float,
        note: str = "",
    ) -> None:
        """Keep a time with what it means."""
        assert self.rates is not None
        units = {name: number * elements / self.rates[name] * 1e6 for name, number in instructions.items()}
        special = units.pop("special", 0.0)
        arithmetic = max(sum(units.values()), special) / taken
        copy, l2_copy = (moved / self.rates[name] * 1e6 / taken for name in COPIES)
        fits = moved <= torch.cuda.get_device_properties(DEVICE).L2_cache_size / 2
        memory = l2_copy if fits else copy
        bound = "arithmetic" if arithmetic >= memory else "memory"
        entry: dict[str, Any] = {
            "kernel": kernel,
            "shape": list(shape),
            "us": taken,
            "elements": elements,
            "instructions_an_element": instructions,
            "needed_instructions": elements * sum(n for name, n in instructions.items() if name != "special"),
            "needed_bytes": moved,
            "arithmetic_share": arithmetic,
            "copy_share": copy,
            "l2_copy_share": l2_copy,
            "bytes_held_against": "L2" if fits else "device memory",
            "bound": bound if max(arithmetic, memory) >= LATENCY else "latency",
        }
        self.kernels.append({**entry, "note": note} if note else entry)
        print(
            f"{kernel:44s} {' × '.join(map(str, shape)):>20s} {taken:9.1f} us"
            f" {entry['needed_instructions'] / 1e6:10.1f} M instructions {arithmetic:6.1%}"
            f" {moved / 1e6:8.1f} MB {copy:6.1%} (L2 {l2_copy:6.1%}) {entry['bound']}",
            flush=True,
        )


def size(*tensors: Tensor | None) -> int:
    """Bytes of tensors."""
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


def both(*parts: dict[str, float]) -> dict[str, float]:
    """Instructions of two passes."""
    return {name: sum(part.get(name, 0) for part in parts) for part in parts for name in part}


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def below(number: int, *shape: int) -> Tensor:
    return torch.randint(number, shape, device=DEVICE)


def differentiate(score: Callable[..., Tensor | tuple[Tensor, ...]], tables: Sequence[Tensor], upstream: Any) -> None:
    """Forward and backward; the leaves are new, so that nothing of autograd hangs on another stream."""
    leaves = [t.detach().requires_grad_() for t in tables]
    torch.autograd.grad(score(*leaves), leaves, upstream)
