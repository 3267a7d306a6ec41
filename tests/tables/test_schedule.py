"""Learning rates by step."""

import numpy as np
import pytest

from pairre.settings import TrainRecipe
from pairre.tables.schedule import adam_rates, learning_rates, restart_step


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1.0, 1.0, 1.0, 1.0]),
        ("step", [1.0, 1.0, 0.1, 0.1]),
        ("linear", [1.0, 0.75, 0.5, 0.25]),
        ("trapezoid", [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5]),
        ("cosine", [1.0, 0.8535533905932737, 0.5, 0.14644660940672627]),
    ],
)
def test_schedules(schedule, expected):
    recipe = TrainRecipe(lr=1.0, steps=len(expected), schedule=schedule)
    assert learning_rates(recipe).tolist() == pytest.approx(expected)


def test_warm_up_rises_to_the_schedule():
    recipe = TrainRecipe(lr=2.0, steps=100, schedule="constant", warmup=4)
    assert learning_rates(recipe)[:6].tolist() == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0, 2.0])


def test_only_the_step_schedule_restarts_at_half():
    recipe = TrainRecipe(lr=1.0, steps=10, schedule="step")
    assert restart_step(recipe) == 5
    rates = adam_rates(recipe)
    np.testing.assert_allclose(rates[5:], rates[:5] * [0.1, 1.0])
    assert restart_step(TrainRecipe(steps=10, schedule="linear")) is None
