"""Vectors times matrices that several of them share, against float64, with gradients."""

import pytest
import torch

from pairre.kernels.reference import products as reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # Triton interprets kernels where there is no GPU


@pytest.mark.parametrize("dim", [1, 6, 70, 130])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_products_and_gradients_are_those_of_each_vector_with_its_matrix(dim, on_gpu):
    """The matrices are a part of longer rows; some have many vectors, some have none."""
    kernels = pytest.importorskip("pairre.kernels.cuda.products") if on_gpu else reference
    device, random = DEVICE if on_gpu else "cpu", torch.Generator().manual_seed(dim)
    number = torch.tensor([5, 2, 2, 5, 0, 5, 5, 5, 5]).to(device)
    rows = torch.randn(7, 3 + dim * dim, generator=random).to(device).requires_grad_()
    vectors = torch.randn(len(number), dim, generator=random).to(device).requires_grad_()
    upstream = torch.randn(len(number), dim, generator=random).to(device)
    found = kernels.grouped_product(rows[:, 3:].view(7, dim, dim), number, vectors)
    wide, wide_vectors = (x.detach().double().requires_grad_() for x in (rows, vectors))
    expected = torch.einsum("bij,bj->bi", wide[:, 3:].view(7, dim, dim)[number], wide_vectors)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)
    gradients = torch.autograd.grad(found, (rows, vectors), upstream)
    of_wide = torch.autograd.grad(expected, (wide, wide_vectors), upstream.double())
    for gradient, exact in zip(gradients, of_wide, strict=True):
        torch.testing.assert_close(gradient.double(), exact, rtol=1e-5, atol=1e-4)
