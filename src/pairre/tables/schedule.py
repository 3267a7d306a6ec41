"""Learning rates of every step, by the schedule of a recipe."""

from __future__ import annotations

import numpy as np

from pairre.kernels.reference.rows import BETA1, BETA2
from pairre.settings.recipe import TrainRecipe


def learning_rates(recipe: TrainRecipe) -> np.ndarray:
    """Return the learning rate of every step."""
    step = np.arange(recipe.steps)
    warm = np.minimum(1.0, (step + 1) / recipe.warmup) if recipe.warmup else 1.0
    done = step / recipe.steps
    match recipe.schedule:
        case "step":
            factor = np.where(step < recipe.steps // 2, 1.0, 0.1)
        case "linear":
            factor = 1 - done
        case "trapezoid":
            factor = np.minimum(1.0, 5 * (1 - done))
        case "cosine":
            factor = (1 + np.cos(np.pi * done)) / 2
        case _:
            factor = np.ones(recipe.steps)
    return np.asarray(recipe.lr * warm * factor)


def restart_step(recipe: TrainRecipe) -> int | None:
    """Return the step at which the `step` schedule drops the rate and the optimiser starts afresh, if there is one."""
    return recipe.steps // 2 if recipe.schedule == "step" else None


def adam_rates(recipe: TrainRecipe) -> np.ndarray:
    """Return what Adam needs of every step, [steps, 2]: the rate over the mean's bias, and the square's bias."""
    number = 1 + np.arange(recipe.steps)
    if restart := restart_step(recipe):
        number = np.where(number > restart, number - restart, number)
    rate = learning_rates(recipe) / (1 - BETA1**number)
    return np.stack([rate, (1 - BETA2**number) ** -0.5], 1)
