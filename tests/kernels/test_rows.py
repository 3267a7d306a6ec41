"""Rows of a table on every backend: read, moved once however often they occur, and caught up with steps they missed."""

import importlib

import pytest
import torch

from pairre.kernels import AdamState
from pairre.settings import TrainRecipe
from pairre.tables import OPTIMIZERS

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = [
    pytest.param("reference", "cpu", id="reference"),
    pytest.param("cpu", "cpu", id="cpu"),
    pytest.param("cuda", DEVICE, id="cuda"),
]
ROWS, DIM = 9, 5


def rates(recipe):
    """What the kernels of the recipe's optimiser need of every step."""
    return torch.from_numpy(OPTIMIZERS[recipe.optimizer].rates(recipe))


def backend(name):
    if name == "cuda":
        pytest.importorskip("triton", reason="triton is not installed")
    module, kind = {"reference": ("backend", "Backend"), "cpu": ("cpu", "CpuBackend"), "cuda": ("cuda", "CudaBackend")}[
        name
    ]
    return getattr(importlib.import_module(f"pairre.kernels.{module}"), kind)()


def torch_tables(start, touched, given, recipe, lazy):
    """The table before every step and at the end, by torch: Adam, or SparseAdam, which leaves other rows alone."""
    table = torch.nn.Parameter(start.clone())
    optimizer = (torch.optim.Adam if lazy else torch.optim.SparseAdam)([table], lr=1.0)
    tables = [start]
    for step in range(recipe.steps):
        ids = touched.get(step, torch.tensor([], dtype=torch.int64))
        real = ids >= 0
        values = given[step][real] if step in touched else torch.zeros(0, DIM, dtype=torch.float64)
        with torch.sparse.check_sparse_tensor_invariants(True):
            table.grad = torch.sparse_coo_tensor(ids[real][None], values, start.shape)
        if lazy:
            table.grad = table.grad.to_dense()
        optimizer.param_groups[0]["lr"] = float(rates(recipe)[step, 0]) * (1 - 0.9 ** (step + 1))
        optimizer.step()
        tables.append(table.detach().clone())
    return tables


@pytest.mark.parametrize(("name", "device"), BACKENDS)
def test_ids_are_grouped(name, device):
    ids = torch.tensor([5, 2, 5, -1, 2, 5, 0], device=device)
    groups = backend(name).group_ids(ids)
    assert groups.ids.tolist() == [-1, 0, 2, 2, 5, 5, 5]
    assert groups.order.tolist() == [3, 6, 1, 4, 0, 2, 5]
    assert groups.ends.tolist() == [1, 2, 4, 4, 7, 7, 7]
    many = torch.randint(50, (9000,), generator=torch.Generator().manual_seed(0)).to(device)
    for field, expected in vars(backend("reference").group_ids(many.cpu())).items():
        assert torch.equal(getattr(backend(name).group_ids(many), field).cpu(), expected), field


@pytest.mark.parametrize(("name", "device"), BACKENDS)
@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("pause", [1, 7, 290])
def test_adam_equals_torch(name, device, lazy, pause):
    """Rows are touched every `pause` steps, one of them twice at a time, row 8 never.

    A pause of 290 is longer than what is replayed step by step.
    """
    kernels = backend(name)
    dtype, tolerance = (torch.float32, 1e-4) if name == "cuda" else (torch.float64, 1e-9)
    tolerance = tolerance if lazy else max(tolerance, 1e-6)  # SparseAdam adds eps before it corrects the bias
    num_steps = 3 * pause
    recipe = TrainRecipe(steps=num_steps, lr=0.1, schedule="cosine", warmup=3)
    random = torch.Generator().manual_seed(0)
    start = torch.randn(ROWS, DIM, generator=random, dtype=torch.float64)
    touched = {step: torch.tensor([4, 1, 4, -1, step // pause]) for step in range(0, num_steps, pause)}
    given = {step: torch.randn(5, DIM, generator=random, dtype=torch.float64) for step in touched}
    expected = torch_tables(start, touched, given, recipe, lazy)
    table = start.to(device, dtype)
    seen = torch.full((ROWS,), -1, dtype=torch.int32, device=device) if lazy else None
    adam = AdamState(table, torch.zeros_like(table), torch.zeros_like(table), seen, rates(recipe).to(device, dtype))
    for number, ids in touched.items():
        step, ids = torch.tensor(number, device=device), ids.to(device)
        groups = kernels.group_ids(ids)
        rows = kernels.gather_adam(adam, ids, groups, step).double().cpu()
        wanted = expected[number][ids.cpu().clamp(min=0)] * (ids.cpu() >= 0)[:, None]
        torch.testing.assert_close(rows, wanted, rtol=tolerance, atol=tolerance)
        values = rows.to(device, dtype)
        kernels.update_adam(adam, groups, values, given[number].to(device, dtype), step)
    kernels.flush_adam(adam, torch.tensor(num_steps, device=device))
    torch.testing.assert_close(adam.table.double().cpu(), expected[-1], rtol=tolerance, atol=tolerance)
    if lazy:
        assert adam.seen.tolist() == [num_steps if i in (0, 1, 2, 4) else -1 for i in range(ROWS)]


@pytest.mark.parametrize(("name", "device"), BACKENDS)
def test_adagrad_has_one_accumulator_a_row(name, device):
    kernels = backend(name)
    dtype = torch.float32 if name == "cuda" else torch.float64
    recipe = TrainRecipe(steps=3, lr=0.5, optimizer="adagrad", schedule="constant", warmup=0)
    random = torch.Generator().manual_seed(0)
    start = torch.randn(ROWS, DIM, generator=random, dtype=torch.float64)
    expected, sums = start.clone(), torch.zeros(ROWS, dtype=torch.float64)
    table, square = start.to(device, dtype), torch.zeros(ROWS, dtype=dtype, device=device)
    ids = torch.tensor([3, 0, 3, -1])
    for number in range(3):
        gradient = torch.randn(4, DIM, generator=random, dtype=torch.float64)
        for row in (0, 3):
            total = gradient[ids == row].sum(0)
            sums[row] += total.square().mean()
            expected[row] -= 0.5 * total / (sums[row].sqrt() + 1e-10)
        step = torch.tensor(number, device=device)
        groups = kernels.group_ids(ids.to(device))
        kernels.update_adagrad(table, square, rates(recipe).to(device, dtype), groups, gradient.to(device, dtype), step)
    torch.testing.assert_close(table.double().cpu(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(square.double().cpu(), sums, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "device"), BACKENDS)
def test_elementwise_adagrad_equals_torch(name, device):
    kernels = backend(name)
    dtype = torch.float32 if name == "cuda" else torch.float64
    recipe = TrainRecipe(steps=3, lr=0.5, optimizer="elementwise-adagrad", schedule="constant", warmup=0)
    random = torch.Generator().manual_seed(0)
    start = torch.randn(ROWS, DIM, generator=random, dtype=torch.float64)
    expected = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.Adagrad([expected], lr=0.5)
    table = start.to(device, dtype)
    square = torch.zeros_like(table)
    ids = torch.tensor([3, 0, 3, -1])
    for number in range(3):
        gradient = torch.randn(4, DIM, generator=random, dtype=torch.float64)
        expected.grad = torch.zeros_like(start).index_add_(0, ids[:3], gradient[:3])
        optimizer.step()
        step, groups = torch.tensor(number, device=device), kernels.group_ids(ids.to(device))
        kernels.update_adagrad(table, square, rates(recipe).to(device, dtype), groups, gradient.to(device, dtype), step)
    torch.testing.assert_close(table.double().cpu(), expected.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "device"), BACKENDS)
def test_rows_are_read(name, device):
    table = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).to(device)
    rows = backend(name).gather_rows(table, torch.tensor([2, -1, 2, 0], device=device))
    assert torch.equal(rows, torch.stack([table[2], torch.zeros_like(table[0]), table[2], table[0]]))


@pytest.mark.parametrize(("name", "device"), BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_at_random(name, device, dtype):
    """Steps far below the last place of a stored value still move it, on average as far as they should."""
    kernels = backend(name)
    num = 2000
    recipe = TrainRecipe(steps=40, lr=1e-5, optimizer="adagrad", schedule="constant")
    table = torch.full((3, num), 0.3, dtype=dtype, device=device)
    start = table[0, 0].item()
    square = torch.zeros(3, device=device)
    moved = 0.0
    for number in range(40):
        ids, step = torch.tensor([1], device=device), torch.tensor(number, device=device)
        gradient = torch.ones(1, num, device=device)
        kernels.update_adagrad(
            table, square, rates(recipe).to(device, torch.float32), kernels.group_ids(ids), gradient, step
        )
        moved += 1e-5 / (number + 1) ** 0.5
    assert (table[[0, 2]] == start).all()
    assert table[1].unique().numel() > 1
    last_place = 2.0 ** (-2 - (10 if dtype == torch.float16 else 7))
    assert (table[1].double().mean().item() - (start - moved)) == pytest.approx(0, abs=5 * last_place / num**0.5)


@pytest.mark.parametrize("lazy", [True, False])
def test_half_precision_is_the_same_on_every_backend(lazy):
    results = []
    for param in BACKENDS:
        name, device = param.values
        kernels = backend(name)
        random = torch.Generator().manual_seed(0)
        recipe = TrainRecipe(steps=20, lr=0.01)
        table = torch.randn(ROWS, DIM, generator=random).half().to(device)
        moments = [torch.zeros(ROWS, DIM, device=device) for _ in range(2)]
        seen = torch.full((ROWS,), -1, dtype=torch.int32, device=device) if lazy else None
        adam = AdamState(table, *moments, seen, rates(recipe).to(device, torch.float32))
        for step in (0, 3, 9):
            step, ids = torch.tensor(step, device=device), torch.tensor([1, 4, 1], device=device)
            groups, gradient = kernels.group_ids(ids), torch.randn(3, DIM, generator=random).to(device)
            kernels.update_adam(adam, groups, kernels.gather_adam(adam, ids, groups, step), gradient, step)
        kernels.flush_adam(adam, torch.tensor(20, device=device))
        results.append(table.float().cpu())
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=2e-3, atol=2e-3)
        assert (other == results[0]).float().mean() > 0.8
