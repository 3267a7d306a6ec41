"""Sum over the links of an entity what matrices of blocks make of its neighbours: no matrix is copied for a link.

n entities, L links of each, T matrices, D features in blocks of S. The gradient of a matrix is added up over its links
in a fixed order, so that results are the same in every run.
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

from pairre.kernels.cuda.terms import still
from pairre.kernels.cuda.tiles import power
from pairre.kernels.reference import messages as reference

_MANY = 1 << 16  # links, of which thousands may have one matrix


@triton.jit
def _product(TABLE, X, row, rf, here, D, S: tl.constexpr):
    """Return features rf of what the blocks in a row of a table make of x, blocks being stored by column of theirs."""
    total = rf.to(tl.float32) * 0
    for j in tl.static_range(S):
        v = tl.load(TABLE + row * D * S + (rf // S * S + j) * S + rf % S, mask=here, other=0.0)
        total += v * tl.load(X + rf // S * S + j, mask=here, other=0.0)
    return total


@triton.jit
def _receive(TURNED, X, INDEX, SHARE, OUT, D, num_links, S: tl.constexpr, BF: tl.constexpr):
    """Store BF features of what one entity receives."""
    n = tl.program_id(0).to(tl.int64)
    rf = tl.program_id(1) * BF + tl.arange(0, BF)
    acc = tl.zeros([BF], tl.float32)
    for link in range(0, num_links):
        share = tl.load(SHARE + n * num_links + link)
        row = tl.load(INDEX + n * num_links + link)
        here = (rf < D) & (share + tl.zeros([BF], tl.float32) != 0)
        acc += share * _product(TURNED, X + (n * num_links + link) * D, row, rf, here, D, S)
    tl.store(OUT + n * D + rf, acc, mask=rf < D)


@triton.jit
def _to_neighbours(TABLE, G, INDEX, SHARE, OUT, D, num_links, S: tl.constexpr, BF: tl.constexpr):
    """Store BF features of the gradients of the neighbours of one entity."""
    n = tl.program_id(0).to(tl.int64)
    rf = tl.program_id(1) * BF + tl.arange(0, BF)
    for link in range(0, num_links):
        share = tl.load(SHARE + n * num_links + link)
        row = tl.load(INDEX + n * num_links + link)
        here = (rf < D) & (share + tl.zeros([BF], tl.float32) != 0)
        part = _product(TABLE, G + n * D, row, rf, here, D, S)
        tl.store(OUT + (n * num_links + link) * D + rf, share * part, mask=rf < D)


@triton.jit
def _to_matrices(
    X, G, SHARE, ORDER, OWN, STARTS, OUT, num_rows, D,
    S: tl.constexpr, PARTS: tl.constexpr, UNROLL: tl.constexpr, BF: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Store part `program 2` of the gradient of BF rows of blocks of one matrix; ORDER has its links, OWN who has them.

    A thread has a whole row of a block, for which it loads one number of the gradient; and a program is a warp, as the
    threads of several would wait for each other at every link.
    """
    row = tl.program_id(0).to(tl.int64)
    rj, rf = tl.arange(0, BS), tl.program_id(1) * BF + tl.arange(0, BF)
    inside = (rj < S)[:, None] & (rf < D)[None, :]
    begin = tl.load(STARTS + row)
    size = tl.load(STARTS + row + 1) - begin
    end = begin + size * (tl.program_id(2) + 1) // PARTS
    acc = tl.zeros([BS, BF], tl.float32)
    for first in range(begin + size * tl.program_id(2) // PARTS, end, UNROLL):
        for u in tl.static_range(UNROLL):
            at = tl.minimum(first + u, end - 1)
            here = still(rf < D, first + u, end)
            g = tl.load(SHARE + at) * tl.load(G + tl.load(OWN + at) * D + rf, mask=here, other=0.0)
            x = tl.load(X + tl.load(ORDER + at) * D + (rf // S * S)[None, :] + rj[:, None], mask=inside, other=0.0)
            acc += g[None, :] * x
    out = OUT + (tl.program_id(2) * num_rows + row) * D * S
    tl.store(out + (rf * S)[None, :] + rj[:, None], acc, mask=inside)


class _BlockMessages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tables: Tensor) -> Tensor:
        table, near, index, share = (t.contiguous() for t in tables)
        ctx.save_for_backward(table, near, index, share)
        out, (num, num_links, dim) = near.new_empty(len(near), near.shape[2]), near.shape
        size, tile = table.shape[1] // dim, power(dim, 128)
        turned = table.view(-1, size, size).mT.contiguous()  # so that neighbouring threads read neighbouring elements
        _receive[(num, triton.cdiv(dim, tile))](
            *(turned, near, index, share, out, dim, num_links), S=size, BF=tile, num_warps=max(1, tile // 32)
        )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        table, near, index, share = ctx.saved_tensors
        g, (num, num_links, dim), num_rows = gradient.contiguous(), near.shape, len(table)
        size, tile, of_near = table.shape[1] // dim, power(dim, 128), torch.empty_like(near)
        _to_neighbours[(num, triton.cdiv(dim, tile))](
            *(table, g, index, share, of_near, dim, num_links), S=size, BF=tile, num_warps=max(1, tile // 32)
        )
        ordered, order = index.flatten().sort(stable=True)
        starts = torch.searchsorted(ordered, torch.arange(num_rows + 1, device=index.device))
        parts = table.new_empty(16 if len(order) > _MANY else 8, *table.shape)  # of the links of one matrix
        _to_matrices[(num_rows, triton.cdiv(dim, 32), len(parts))](
            *(near, g, share.flatten()[order], order, order // num_links, starts, parts, num_rows, dim),
            S=size,
            PARTS=len(parts),
            UNROLL=4,
            BF=32,
            BS=triton.next_power_of_2(size),
            num_warps=1,
        )
        return parts.sum(0), of_near, None, None


def block_messages(table: Tensor, near: Tensor, index: Tensor, share: Tensor) -> Tensor:
    """Return what `reference.block_messages` returns."""
    if any(t.dtype != torch.float32 or t.numel() == 0 for t in (table, near)):
        return reference.block_messages(table, near, index, share)
    received: Tensor = _BlockMessages.apply(table, near, index, share.float())  # type: ignore[no-untyped-call]
    return received
