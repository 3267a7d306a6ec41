"""Optimisers over rows of a table, and learning rates by step.

An optimiser owns a table: it reads rows for a step and moves them afterwards. With `update_rows = "all"` Adam also moves the
rows that were not touched, as the paper's does, but only when they are next needed; with `update_rows = "touched"` they stay.
Either way a step costs the same however large the table is. Everything a step depends on is on the device, the number
of the step included.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pairre import kernels
from pairre.kernels.reference.rows import BETA1, BETA2, wide
from pairre.settings.recipe import TrainRecipe


class RowOptimizer(Protocol):
    """What training asks of an optimiser of one table."""

    state: dict[str, Tensor]

    def read(self, ids: Tensor, groups: kernels.Groups, clock: Tensor) -> Tensor:
        """Rows as they are before step `clock`."""

    def step(self, groups: kernels.Groups, values: Tensor, gradient: Tensor, clock: Tensor) -> None:
        """Move rows, whose values were read, against their gradient."""

    def settle(self, clock: Tensor) -> None:
        """Finish what was put off, so that the table can be used."""

    def restart(self, clock: Tensor) -> None:
        """Forget everything."""


class Adam:
    """Adam (Kingma & Ba, 2015) over all rows or over the touched ones."""

    def __init__(self, table: Tensor, recipe: TrainRecipe) -> None:
        self.kernels = kernels.backend(table.device.type)
        self.state = {name: torch.zeros(table.shape, device=table.device, dtype=wide(table.dtype)) for name in _MOMENTS}
        if recipe.update_rows == "all":
            self.state["seen"] = torch.full((len(table),), -1, dtype=torch.int32, device=table.device)
        mean, square = (self.state[name] for name in _MOMENTS)
        self.adam = kernels.AdamTable(table, mean, square, self.state.get("seen"), _rates_of(table, recipe))

    def read(self, ids: Tensor, groups: kernels.Groups, clock: Tensor) -> Tensor:
        """Rows, caught up."""
        rows: Tensor = self.kernels.read_adam(self.adam, ids, groups, clock)
        return rows

    def step(self, groups: kernels.Groups, values: Tensor, gradient: Tensor, clock: Tensor) -> None:
        """Move rows; the step count for the bias correction is the table's, not a row's."""
        self.kernels.adam_rows(self.adam, groups, values, gradient, clock)

    def settle(self, clock: Tensor) -> None:
        """Have all rows catch up."""
        self.kernels.settle(self.adam, clock)

    def restart(self, clock: Tensor) -> None:
        """Start afresh."""
        self.settle(clock)
        for name, tensor in self.state.items():
            tensor.fill_(-1 if name == "seen" else 0)


class Adagrad:
    """Row-wise Adagrad: one accumulator a row; rows without a gradient stay as they are either way."""

    def __init__(self, table: Tensor, recipe: TrainRecipe) -> None:
        self.kernels = kernels.backend(table.device.type)
        self.table = table
        self.state = {"square": torch.zeros(len(table), dtype=wide(table.dtype), device=table.device)}
        self.rates = _rates_of(table, recipe)

    def read(self, ids: Tensor, groups: kernels.Groups, clock: Tensor) -> Tensor:  # noqa: ARG002
        """Rows as they are stored."""
        rows: Tensor = self.kernels.read_rows(self.table, ids)
        return rows

    def step(self, groups: kernels.Groups, values: Tensor, gradient: Tensor, clock: Tensor) -> None:  # noqa: ARG002
        """Move rows."""
        self.kernels.adagrad_rows(self.table, self.state["square"], self.rates, groups, gradient, clock)

    def settle(self, clock: Tensor) -> None:
        """Nothing is put off."""

    def restart(self, clock: Tensor) -> None:  # noqa: ARG002
        """Start afresh."""
        self.state["square"].zero_()


_MOMENTS = ("mean", "square")


def _rates_of(table: Tensor, recipe: TrainRecipe) -> Tensor:
    return rates(recipe).to(table.device, wide(table.dtype))


def make_optimizer(table: Tensor, recipe: TrainRecipe) -> RowOptimizer:
    """The optimiser of one table."""
    return Adagrad(table, recipe) if recipe.optimizer == "adagrad" else Adam(table, recipe)


def learning_rates(recipe: TrainRecipe) -> np.ndarray:
    """The rate of every step."""
    step = np.arange(recipe.steps)
    warm = np.minimum(1.0, (step + 1) / recipe.warmup) if recipe.warmup else 1.0
    done = step / recipe.steps
    match recipe.schedule:
        case "step":
            factor = np.where(step < restart_step(recipe), 1.0, 0.1)
        case "linear":
            factor = 1 - done
        case "cosine":
            factor = (1 + np.cos(np.pi * done)) / 2
        case _:
            factor = np.ones(recipe.steps)
    return np.asarray(recipe.lr * warm * factor)


def rates(recipe: TrainRecipe) -> Tensor:
    """What an optimiser needs of every step, [steps, 2]: the rate and, for Adam, its bias corrections."""
    rate = learning_rates(recipe)
    if recipe.optimizer == "adagrad":
        return torch.from_numpy(np.stack([rate, np.ones_like(rate)], 1))
    number = 1 + np.arange(recipe.steps)
    if recipe.schedule == "step":
        number = np.where(number > restart_step(recipe), number - restart_step(recipe), number)
    return torch.from_numpy(np.stack([rate / (1 - BETA1**number), (1 - BETA2**number) ** -0.5], 1))


def restart_step(recipe: TrainRecipe) -> int:
    """The step at which the `step` schedule drops the rate and the optimiser starts afresh."""
    return recipe.steps // 2
