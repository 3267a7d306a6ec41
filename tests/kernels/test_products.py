"""Vectors times matrices that several of them share, against float64, with gradients."""

import pytest
import torch

from pairre.kernels.reference import products as reference
from pairre.kernels.reference.scores import stable_product

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


@pytest.mark.parametrize("on_gpu", [False, True])
def test_rows_times_a_matrix_of_blocks_have_no_bit_from_other_rows(on_gpu):
    """Rows and blocks are parts of longer ones, and the blocks are turned."""
    kernels = pytest.importorskip("pairre.kernels.cuda.products") if on_gpu else reference
    device, random = DEVICE if on_gpu else "cpu", torch.Generator().manual_seed(0)
    rows = torch.randn(200, 50, generator=random).to(device)[:, 7:49]
    blocks = torch.randn(6, 7, 7, generator=random).to(device).mT
    rows[150] = rows[3]
    found = kernels.block_product(rows, blocks)
    expected = torch.einsum("ngi,gij->ngj", rows.double().unflatten(1, (6, 7)), blocks.double()).flatten(1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(found[150], found[3])
    assert torch.equal(kernels.block_product(rows[3:4], blocks), found[3:4])
    assert found.mT.is_contiguous() == on_gpu, "where scores are computed by feature, nothing is turned for them"
    several = kernels.block_product(rows[None], torch.stack([blocks, blocks.mT]))
    torch.testing.assert_close(several[0].double(), expected, rtol=1e-5, atol=1e-5)
    learns = kernels.block_product(rows.requires_grad_(), blocks)
    assert torch.autograd.grad(learns.sum(), rows)[0].isfinite().all()


@pytest.mark.parametrize(("shape", "of_matrix"), [((9, 33), (33, 5)), ((2, 9, 20), (20, 20)), ((9, 1, 6), (9, 6, 6))])
def test_stable_products_of_a_gpu_are_those_of_the_reference_to_the_bit(shape, of_matrix):
    kernels, random = pytest.importorskip("pairre.kernels.cuda.products"), torch.Generator().manual_seed(0)
    rows, matrix = (torch.randn(size, generator=random) for size in (shape, of_matrix))
    rows[0], rows[1] = 0, rows[1] * 1e-30
    matrix[..., 2] = 2.0
    for factor in (matrix, matrix.mT.contiguous().mT):
        found = kernels.stable_product(rows.to(DEVICE), factor.to(DEVICE))
        assert torch.equal(found.cpu(), stable_product(rows, factor))
    learns = kernels.stable_product(rows.to(DEVICE).requires_grad_(), matrix.to(DEVICE))
    torch.testing.assert_close(learns.detach().cpu(), rows @ matrix)
