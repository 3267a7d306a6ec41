"""What matrices of blocks make of the neighbours of entities, against float64, with gradients."""

import pytest
import torch

from pairre.kernels.reference import messages as reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # Triton interprets kernels where there is no GPU


@pytest.mark.parametrize(("size", "blocks"), [(1, 1), (5, 3), (5, 30), (20, 2)])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_messages_and_gradients_are_those_of_each_link(size, blocks, on_gpu):
    """Some links are not there, one matrix has no link and one has most of them."""
    kernels = pytest.importorskip("pairre.kernels.cuda.messages") if on_gpu else reference
    device, random = DEVICE if on_gpu else "cpu", torch.Generator().manual_seed(size)
    dim, index = size * blocks, torch.randint(2, 5, (7, 3), generator=random)
    index[1:5] = 2
    share = torch.rand(7, 3, generator=random) * (torch.rand(7, 3, generator=random) < 0.8)
    table, near = torch.randn(6, dim * size, generator=random), torch.randn(7, 3, dim, generator=random)
    upstream = torch.randn(7, dim, generator=random).to(device)
    table, near, index, share = (t.to(device) for t in (table, near, index, share))
    found = kernels.block_messages(table.requires_grad_(), near.requires_grad_(), index, share)
    wide, wide_near = (t.detach().double().requires_grad_() for t in (table, near))
    matrices = torch.stack([torch.block_diag(*row.view(-1, size, size)) for row in wide])
    expected = torch.einsum("nl,nlij,nlj->ni", share.double(), matrices[index], wide_near)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)
    gradients = torch.autograd.grad(found, (table, near), upstream)
    of_wide = torch.autograd.grad(expected, (wide, wide_near), upstream.double())
    for gradient, exact in zip(gradients, of_wide, strict=True):
        torch.testing.assert_close(gradient.double(), exact, rtol=1e-5, atol=1e-4)
