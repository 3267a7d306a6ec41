"""Losses and the normalisation of rows on a CUDA device: one launch forward, one backward."""

# Kernels carry no types: Triton infers them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

MAX_NEGATIVES = 32768  # that one program holds


@triton.jit
def _softplus(x):
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def _self_adversarial(
    POSITIVE, NEGATIVE, KNOWN, WEIGHT, UPSTREAM, LOSS, DP, DN, K, margin, temperature,
    FILTER: tl.constexpr, BACKWARD: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute the loss of one positive and its negatives, or with BACKWARD its gradients."""
    b = tl.program_id(0).to(tl.int64)
    rk = tl.arange(0, BK)
    inside = rk < K
    s = tl.load(NEGATIVE + b * K + rk, mask=inside, other=0.0)
    counts = inside
    if FILTER:
        counts = inside & (tl.load(KNOWN + b * K + rk, mask=inside, other=1) == 0)
    logits = tl.where(counts, temperature * s, -1e30)
    power = tl.where(counts, tl.exp(logits - tl.max(logits, axis=0)), 0.0)
    p = power / tl.maximum(tl.sum(power, axis=0), 1e-30)
    half = tl.load(WEIGHT + b) / 2
    positive = tl.load(POSITIVE + b)
    if BACKWARD:
        half = half * tl.load(UPSTREAM)
        tl.store(DP + b, -half * tl.sigmoid(-margin - positive))
        tl.store(DN + b * K + rk, half * p * tl.sigmoid(margin + s), mask=inside)
    else:
        false = tl.sum(p * _softplus(margin + s), axis=0)
        tl.store(LOSS + b, half * (_softplus(-margin - positive) + false))


def _launch(
    inputs: tuple[Tensor, ...],
    settings: tuple[float, ...],
    upstream: Tensor,
    outputs: tuple[Tensor, ...],
    backward: bool,
) -> None:
    positive, negative, known, weight = inputs
    width = triton.next_power_of_2(negative.shape[1])
    _self_adversarial[(len(positive),)](
        *(positive, negative, weight if known is None else known.view(torch.uint8), weight, upstream, *outputs),
        *(negative.shape[1], *settings),
        FILTER=known is not None,
        BACKWARD=backward,
        BK=width,
        num_warps=max(1, min(16, width // 256)),
    )


class _SelfAdversarial(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, positive: Tensor, negative: Tensor, known: Any, weight: Tensor, *settings: float) -> Tensor:
        inputs = (positive.contiguous(), negative.contiguous(), known, weight)
        ctx.save_for_backward(*inputs)
        ctx.settings = settings
        losses = torch.empty_like(weight)
        _launch(inputs, settings, losses, (losses, losses, losses), backward=False)
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        positive, negative = ctx.saved_tensors[:2]
        dp, dn = torch.empty_like(positive), torch.empty_like(negative)
        _launch(ctx.saved_tensors, ctx.settings, upstream.contiguous(), (dp, dp, dn), backward=True)
        return dp, dn, None, None, None, None


def self_adversarial(
    positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, margin: float, temperature: float
) -> Tensor:
    """Return the loss of `training.losses.self_adversarial`, for at most `MAX_NEGATIVES` negatives."""
    result: Tensor = _SelfAdversarial.apply(positive, negative, known, weight, margin, temperature)  # type: ignore[no-untyped-call]
    return result


@triton.jit
def _masked_logits(NEGATIVE, KNOWN, b, rk, K, STRIDE, temperature, FILTER: tl.constexpr):
    """Return temperature times the scores of some negatives of a positive, −∞ where none counts."""
    counts = rk < K
    s = tl.load(NEGATIVE + b * STRIDE + rk, mask=counts, other=0.0)
    if FILTER:
        counts = counts & (tl.load(KNOWN + b * K + rk, mask=counts, other=1) == 0)
    return tl.where(counts, temperature * s, float("-inf"))


@triton.jit
def _cross_entropy(
    POSITIVE, NEGATIVE, KNOWN, WEIGHT, LOSS, TOTAL, K, STRIDE, temperature, FILTER: tl.constexpr, BK: tl.constexpr
):
    """Store the loss of one positive and the logarithm of the sum over it and its negatives, in one pass over these."""
    b = tl.program_id(0).to(tl.int64)
    positive = temperature * tl.load(POSITIVE + b)
    most, power = tl.full([BK], -1e30, tl.float32), tl.zeros([BK], tl.float32)
    for k in range(0, K, BK):
        logits = _masked_logits(NEGATIVE, KNOWN, b, k + tl.arange(0, BK), K, STRIDE, temperature, FILTER)
        higher = tl.maximum(most, logits)
        power = power * tl.exp(most - higher) + tl.exp(logits - higher)
        most = higher
    highest = tl.maximum(tl.max(most, axis=0), positive)
    power = tl.sum(power * tl.exp(most - highest), axis=0) + tl.exp(positive - highest)
    total = highest + tl.log(power)
    tl.store(TOTAL + b, total)
    tl.store(LOSS + b, tl.load(WEIGHT + b) * (total - positive))


@triton.jit
def _cross_entropy_gradient(
    POSITIVE, NEGATIVE, KNOWN, WEIGHT, UPSTREAM, TOTAL, DP, DN, K, STRIDE, temperature,
    FILTER: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Store the gradient [B, K] of some negatives of a positive; one program has that of the positive itself, too."""
    b = tl.program_id(0).to(tl.int64)
    rk = tl.program_id(1) * BK + tl.arange(0, BK)
    factor = tl.load(UPSTREAM) * tl.load(WEIGHT + b) * temperature
    total = tl.load(TOTAL + b)
    logits = _masked_logits(NEGATIVE, KNOWN, b, rk, K, STRIDE, temperature, FILTER)
    tl.store(DN + b * K + rk, factor * tl.exp(logits - total), mask=rk < K)
    if tl.program_id(1) == 0:
        tl.store(DP + b, factor * (tl.exp(temperature * tl.load(POSITIVE + b) - total) - 1))


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, positive: Tensor, negative: Tensor, known: Any, weight: Tensor, temperature: float) -> Tensor:
        positive, negative = positive.contiguous(), negative if negative.stride(-1) == 1 else negative.contiguous()
        losses, total = torch.empty_like(weight), torch.empty_like(positive)
        mask = weight if known is None else known.contiguous().view(torch.uint8)
        sizes = negative.shape[1], negative.stride(0)
        _cross_entropy[(len(positive),)](
            *(positive, negative, mask, weight, losses, total, *sizes, temperature),
            FILTER=known is not None,
            BK=1024,
            num_warps=8,
        )
        ctx.save_for_backward(positive, negative, mask, weight, total)
        ctx.settings = (*sizes, temperature, known is not None)
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        positive, negative, mask, weight, total = ctx.saved_tensors
        num, stride, temperature, with_known = ctx.settings
        dp, dn = torch.empty_like(positive), torch.empty_like(negative, memory_format=torch.contiguous_format)
        _cross_entropy_gradient[(len(positive), triton.cdiv(num, 1024))](
            *(positive, negative, mask, weight, upstream.contiguous(), total, dp, dn, num, stride, temperature),
            FILTER=with_known,
            BK=1024,
            num_warps=4,
        )
        return dp, dn, None, None, None


def cross_entropy(
    positive: Tensor, negative: Tensor, known: Tensor | None, weight: Tensor, temperature: float
) -> Tensor:
    """Return the loss of `training.losses.cross_entropy`."""
    result: Tensor = _CrossEntropy.apply(positive, negative, known, weight, temperature)  # type: ignore[no-untyped-call]
    return result


@triton.jit
def _unit(X, G, OUT, D, BACKWARD: tl.constexpr, BD: tl.constexpr):
    """Compute x / |x| of one row, or with BACKWARD its gradient (g − x̂ (x̂ · g)) / |x|."""
    row = tl.program_id(0).to(tl.int64)
    square = tl.zeros([BD], tl.float32)
    inner = tl.zeros([BD], tl.float32)
    for d in range(0, D, BD):
        rd = d + tl.arange(0, BD)
        x = tl.load(X + row * D + rd, mask=rd < D, other=0.0)
        square += x * x
        if BACKWARD:
            inner += x * tl.load(G + row * D + rd, mask=rd < D, other=0.0)
    scale = 1 / tl.maximum(tl.sqrt(tl.sum(square, axis=0)), 1e-12)
    along = tl.sum(inner, axis=0) * scale * scale
    for d in range(0, D, BD):
        rd = d + tl.arange(0, BD)
        out = tl.load(X + row * D + rd, mask=rd < D, other=0.0)
        if BACKWARD:
            out = tl.load(G + row * D + rd, mask=rd < D, other=0.0) - out * along
        tl.store(OUT + row * D + rd, out * scale, mask=rd < D)


class _UnitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        x = rows.contiguous()
        ctx.save_for_backward(x)
        return _UnitRows.launch(x, x, backward=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return _UnitRows.launch(x, gradient.contiguous(), backward=True)

    @staticmethod
    def launch(x: Tensor, g: Tensor, backward: bool) -> Tensor:
        out = torch.empty_like(x)
        if out.numel():
            width = min(2048, triton.next_power_of_2(x.shape[1]))
            _unit[(len(x),)](x, g, out, x.shape[1], BACKWARD=backward, BD=width, num_warps=max(1, min(8, width // 256)))
        return out


def unit_rows(rows: Tensor) -> Tensor:
    """Return what `reference.unit_rows` returns, for float32 rows [U, D]."""
    result: Tensor = _UnitRows.apply(rows)  # type: ignore[no-untyped-call]
    return result
