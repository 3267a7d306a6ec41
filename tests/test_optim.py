"""Learning rates by step, and what dense and touched-rows optimisers do to rows without a gradient."""

import pytest
import torch

from pairre.optim import Adam, learning_rate, make_optimizer, restart_step
from pairre.recipe import TrainRecipe


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
    assert [learning_rate(recipe, i) for i in range(4)] == pytest.approx(expected)


def test_warm_up_rises_to_the_schedule():
    recipe = TrainRecipe(lr=2.0, steps=100, schedule="constant", warmup=4)
    assert [learning_rate(recipe, i) for i in range(6)] == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0, 2.0])


def test_step_schedule_restarts_at_half():
    assert restart_step(TrainRecipe(steps=10)) == 5
    optimizer = Adam(torch.ones(2, 2), touched_only=False)
    optimizer.step(None, torch.ones(2, 2), 0.1)
    optimizer.restart()
    assert all((value == 0).all() for value in optimizer.state.values())


@pytest.mark.parametrize(("rows", "moves"), [("all", True), ("touched", False)])
def test_rows_without_a_gradient(rows, moves):
    table = torch.ones(3, 2)
    optimizer = make_optimizer(table, TrainRecipe(rows=rows))
    optimizer.step(torch.tensor([0, 1]), torch.ones(2, 2), 0.1)
    before = table[1].clone()
    optimizer.step(torch.tensor([0]), torch.ones(1, 2), 0.1)
    assert (not torch.equal(table[1], before)) == moves
    assert torch.equal(table[2], torch.ones(2))


def test_adagrad_leaves_other_rows_alone():
    table = torch.ones(3, 2)
    make_optimizer(table, TrainRecipe(optimizer="adagrad")).step(torch.tensor([1]), torch.ones(1, 2), 0.1)
    assert torch.equal(table[[0, 2]], torch.ones(2, 2))
    torch.testing.assert_close(table[1], torch.full((2,), 0.9))
