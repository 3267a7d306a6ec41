"""Multiply vectors by matrices that several of them share: no matrix is copied, and its gradient is added up in place.

B vectors, G matrices of D × D, which may be parts of longer rows. Vectors of one matrix are taken after each other, so
that it is read from memory once.
"""

# Kernels carry no types: Triton infers them.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from pairre.kernels.cuda.rows import group_ids
from pairre.kernels.cuda.terms import still
from pairre.kernels.cuda.tiles import power
from pairre.kernels.reference import products as reference
from pairre.kernels.reference import scores

_TOGETHER = 4  # vectors of a program, which finds their matrix in its cache


@triton.jit
def _multiply(
    M, X, NUMBER, ORDER, OUT, num, D, stride,
    TRANSPOSED: tl.constexpr, TOGETHER: tl.constexpr, BI: tl.constexpr, BJ: tl.constexpr,
):  # fmt: skip
    """Store BI elements of the products of TOGETHER vectors with their matrices, or with these transposed."""
    ri = tl.program_id(1) * BI + tl.arange(0, BI)
    for u in range(TOGETHER):
        place = tl.minimum(tl.program_id(0) * TOGETHER + u, num - 1)  # the last one is perhaps stored again
        b = tl.load(ORDER + place)
        matrix = M + tl.load(NUMBER + place) * stride
        acc = tl.zeros([BI, BJ], tl.float32)
        for j0 in range(0, D, BJ):
            rj = j0 + tl.arange(0, BJ)
            inside = (ri < D)[:, None] & (rj < D)[None, :]
            x = tl.load(X + b * D + rj, mask=rj < D, other=0.0)
            if TRANSPOSED:
                m = tl.load(matrix + rj[None, :] * D + ri[:, None], mask=inside, other=0.0)
            else:
                m = tl.load(matrix + ri[:, None] * D + rj[None, :], mask=inside, other=0.0)
            acc += m * x[None, :]
        tl.store(OUT + b * D + ri, tl.sum(acc, axis=1), mask=ri < D)


@triton.jit
def _add_outer(X, G, STARTS, ORDER, OUT, D, UNROLL: tl.constexpr, BI: tl.constexpr, BJ: tl.constexpr):
    """Store a tile of the gradient of one matrix: Σ g xᵀ over its vectors, in their order."""
    group = tl.program_id(0).to(tl.int64)
    ri = tl.program_id(1) * BI + tl.arange(0, BI)
    rj = tl.program_id(2) * BJ + tl.arange(0, BJ)
    acc = tl.zeros([BI, BJ], tl.float32)
    end = tl.load(STARTS + group + 1)
    for first in range(tl.load(STARTS + group), end, UNROLL):
        for u in tl.static_range(UNROLL):
            b = tl.load(ORDER + tl.minimum(first + u, end - 1))
            g = tl.load(G + b * D + ri, mask=still(ri < D, first + u, end), other=0.0)
            x = tl.load(X + b * D + rj, mask=rj < D, other=0.0)
            acc += g[:, None] * x[None, :]
    place = OUT + group * D * D + ri[:, None] * D + rj[None, :]
    tl.store(place, acc, mask=(ri < D)[:, None] & (rj < D)[None, :])


@triton.jit
def _round(X, OUT, K, digits, BK: tl.constexpr):
    """Store a row in float64, rounded to so many binary digits of its largest magnitude."""
    rk = tl.arange(0, BK)
    place, here = tl.program_id(0).to(tl.int64) * K + rk, rk < K
    x = tl.load(X + place, mask=here, other=0.0)
    exponent = tl.maximum(tl.max(tl.abs(x).to(tl.int32, bitcast=True), axis=0) >> 23, 1) - 126 - digits
    unit = ((exponent.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)  # a power of two
    shift = 6755399441055744.0 * unit  # 1.5 · 2⁵²: a sum with it has no room for less than a unit
    tl.store(OUT + place, (x.to(tl.float64) + shift) - shift, mask=here)


@triton.jit
def _multiply_blocks(X, BLOCKS, OUT, num, row_step, S: tl.constexpr, BS: tl.constexpr, BN: tl.constexpr):
    """Store a block's share of the products of BN rows, by feature; sums are in the same order for every row."""
    rn, ri = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BS)
    first, here = tl.program_id(1) * S, rn < num
    acc = tl.zeros([BS, BN], tl.float32)
    for j in tl.static_range(S):
        x = tl.load(X + rn.to(tl.int64) * row_step + first + j, mask=here, other=0.0)
        weight = tl.load(BLOCKS + (first + j) * S + ri, mask=ri < S, other=0.0)
        acc = tl.fma(tl.broadcast_to(weight[:, None], [BS, BN]), tl.broadcast_to(x[None, :], [BS, BN]), acc)
    place = (first + ri).to(tl.int64)[:, None] * num + rn[None, :]
    tl.store(OUT + place, acc, mask=(ri < S)[:, None] & here[None, :])


class _GroupedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrices: Tensor, number: Tensor, vectors: Tensor) -> Tensor:
        vectors, groups = vectors.contiguous(), group_ids(number)
        ctx.save_for_backward(matrices, vectors, groups.ids, groups.order)
        return _products(matrices, groups.ids, groups.order, vectors, transposed=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        matrices, vectors, number, order = ctx.saved_tensors
        gradient, (num, dim, _) = gradient.contiguous(), matrices.shape
        of_matrices = torch.empty(matrices.shape, dtype=matrices.dtype, device=matrices.device)
        starts = torch.searchsorted(number, torch.arange(num + 1, device=number.device))
        tile = power(dim, 64)
        grid = (num, triton.cdiv(dim, tile), triton.cdiv(dim, tile))
        _add_outer[grid](vectors, gradient, starts, order, of_matrices, dim, UNROLL=4, BI=tile, BJ=tile, num_warps=4)
        return of_matrices, None, _products(matrices, number, order, gradient, transposed=True)


def _products(matrices: Tensor, number: Tensor, order: Tensor, vectors: Tensor, *, transposed: bool) -> Tensor:
    """Return the products of vectors [B, D] with their matrices, whose numbers are given in ascending order."""
    out, (num, dim) = torch.empty_like(vectors), vectors.shape
    # Neighbouring threads read neighbouring elements of a matrix: of a row, or of rows side by side.
    tile_i, tile_j = (power(dim, 64), 32) if transposed else (16, power(dim, 128))
    _multiply[(triton.cdiv(num, _TOGETHER), triton.cdiv(dim, tile_i))](
        *(matrices, vectors, number, order, out, num, dim, matrices.stride(0)),
        TRANSPOSED=transposed,
        TOGETHER=_TOGETHER,
        BI=tile_i,
        BJ=tile_j,
        num_warps=4,
    )
    return out


def grouped_product(matrices: Tensor, number: Tensor, vectors: Tensor) -> Tensor:
    """Return what `reference.grouped_product` returns."""
    tables = (matrices, vectors)
    if any(t.dtype != torch.float32 or t.numel() == 0 for t in tables) or matrices[0].stride() != (len(matrices[0]), 1):
        return reference.grouped_product(matrices, number, vectors)
    products: Tensor = _GroupedProduct.apply(matrices, number, vectors)  # type: ignore[no-untyped-call]
    return products


def _rounded(x: Tensor, digits: int) -> Tensor:
    """Return a tensor in float64, each row rounded to so many binary digits of its largest magnitude."""
    x, size = x.contiguous(), x.shape[-1]
    out, tile = torch.empty(x.shape, dtype=torch.float64, device=x.device), triton.next_power_of_2(size)
    _round[(x.numel() // size,)](x, out, size, digits, BK=tile, num_warps=max(1, min(8, tile // 128)))
    return out


def stable_product(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return what `reference.stable_product` returns."""
    learns = torch.is_grad_enabled() and (rows.requires_grad or matrix.requires_grad)
    if learns or any(t.dtype != torch.float32 or t.numel() == 0 for t in (rows, matrix)):
        return scores.stable_product(rows, matrix)
    digits = scores.exact_digits(matrix.shape[-2])
    return (_rounded(rows, digits) @ _rounded(matrix.mT, digits).mT).float()


def block_product(rows: Tensor, blocks: Tensor) -> Tensor:
    """Return what `reference.block_product` returns; without a gradient, stored by feature, as scores are computed."""
    learns = torch.is_grad_enabled() and (rows.requires_grad or blocks.requires_grad)
    fit = rows.dim() == 2 and blocks.dim() == 3 and all(t.dtype == torch.float32 and t.numel() for t in (rows, blocks))
    if learns or not fit or rows.stride(1) != 1:
        return reference.block_product(rows, blocks)
    (num, dim), size, tile = rows.shape, blocks.shape[-1], power(len(rows), 128)
    out = torch.empty(dim, num, device=rows.device)
    _multiply_blocks[(triton.cdiv(num, tile), dim // size)](
        *(rows, blocks.contiguous(), out, num, rows.stride(0)),
        S=size,
        BS=triton.next_power_of_2(size),
        BN=tile,
        num_warps=max(1, tile // 32),
    )
    return out.t()
