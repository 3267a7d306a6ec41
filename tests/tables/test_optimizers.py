"""Learning rates by step, and what dense and touched-rows optimisers do to rows without a gradient."""

import pytest
import torch

from pairre import kernels
from pairre.settings.recipe import TrainRecipe
from pairre.tables.optimizers import learning_rates, make_optimizer, rates, restart_step


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1.0, 1.0, 1.0, 1.0]),
        ("step", [1.0, 1.0, 0.1, 0.1]),
        ("linear", [1.0, 0.75, 0.5, 0.25]),
        ("cosine", [1.0, 0.8535533905932737, 0.5, 0.14644660940672627]),
    ],
)
def test_schedules(schedule, expected):
    recipe = TrainRecipe(lr=1.0, steps=4, schedule=schedule)
    assert learning_rates(recipe).tolist() == pytest.approx(expected)


def test_warm_up_rises_to_the_schedule():
    recipe = TrainRecipe(lr=2.0, steps=100, schedule="constant", warmup=4)
    assert learning_rates(recipe)[:6].tolist() == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0, 2.0])


def move(optimizer, ids, step):
    """One step with a gradient of ones."""
    groups, clock = kernels.backend("cpu").group(torch.tensor(ids)), torch.tensor(step)
    values = optimizer.read(torch.tensor(ids), groups, clock)
    optimizer.step(groups, values, torch.ones(len(ids), 2), clock)


def test_step_schedule_restarts_at_half():
    recipe = TrainRecipe(lr=1.0, steps=10, schedule="step")
    assert restart_step(recipe) == 5
    corrected = rates(recipe)
    torch.testing.assert_close(corrected[5:], corrected[:5] * torch.tensor([0.1, 1.0], dtype=torch.float64))
    table = torch.ones(2, 2)
    optimizer = make_optimizer(table, recipe)
    move(optimizer, [0], 0)
    once = table.clone()
    optimizer.restart(torch.tensor(5))
    assert (table[0] < once[0]).all(), "steps that were put off are not forgotten"
    assert all((value <= 0).all() for value in optimizer.state.values())


@pytest.mark.parametrize(("rows", "moves"), [("all", True), ("touched", False)])
def test_rows_without_a_gradient(rows, moves):
    table = torch.ones(3, 2)
    optimizer = make_optimizer(table, TrainRecipe(update_rows=rows))
    move(optimizer, [0, 1], 0)
    before = table[1].clone()
    move(optimizer, [0], 1)
    optimizer.settle(torch.tensor(2))
    assert (not torch.equal(table[1], before)) == moves
    assert torch.equal(table[2], torch.ones(2))


def test_adagrad_leaves_other_rows_alone():
    table = torch.ones(3, 2)
    move(make_optimizer(table, TrainRecipe(optimizer="adagrad", lr=0.1, schedule="constant")), [1], 0)
    assert torch.equal(table[[0, 2]], torch.ones(2, 2))
    torch.testing.assert_close(table[1], torch.full((2,), 0.9))
