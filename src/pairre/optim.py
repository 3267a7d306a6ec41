"""Optimisers over rows of a table, and learning rates by step.

An optimiser gets the rows a step touched and their gradients. With `rows = "all"` Adam also moves the rows that were
not touched, as the paper's does; with `rows = "touched"` a step costs the same however large the table is.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from pairre import ops
from pairre.recipe import TrainRecipe


class RowOptimizer(Protocol):
    """What training asks of an optimiser of one table."""

    state: dict[str, Tensor]

    def step(self, ids: Tensor | None, gradient: Tensor, lr: float) -> None:
        """Move rows `ids` (None: all) against their gradient."""

    def restart(self) -> None:
        """Forget everything."""


class Adam:
    """Adam (Kingma & Ba, 2015) over all rows or over the touched ones."""

    def __init__(self, table: Tensor, touched_only: bool) -> None:
        self.table = table
        self.touched_only = touched_only
        self.state = {
            "mean": torch.zeros_like(table),
            "square": torch.zeros_like(table),
            "step": torch.zeros((), dtype=torch.int64),
        }

    def step(self, ids: Tensor | None, gradient: Tensor, lr: float) -> None:
        """Move rows; the step count for the bias correction is the table's, not a row's."""
        self.state["step"] += 1
        step = ops.AdamStep(lr, int(self.state["step"]), dense=not self.touched_only)
        adam_rows = ops.backend(self.table.device.type).adam_rows
        adam_rows(self.table, self.state["mean"], self.state["square"], ids, gradient, step)

    def restart(self) -> None:
        """Start afresh."""
        for tensor in self.state.values():
            tensor.zero_()


class Adagrad:
    """Row-wise Adagrad: one accumulator a row; rows without a gradient stay as they are either way."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.state = {"square": torch.zeros(len(table), dtype=table.dtype, device=table.device)}

    def step(self, ids: Tensor | None, gradient: Tensor, lr: float) -> None:
        """Move rows."""
        ops.backend(self.table.device.type).adagrad_rows(
            self.table, self.state["square"], ids, gradient, lr=lr, eps=1e-10
        )

    def restart(self) -> None:
        """Start afresh."""
        self.state["square"].zero_()


def make_optimizer(table: Tensor, recipe: TrainRecipe) -> RowOptimizer:
    """The optimiser of one table."""
    if recipe.optimizer == "adagrad":
        return Adagrad(table)
    return Adam(table, touched_only=recipe.rows == "touched")


def learning_rate(recipe: TrainRecipe, step: int) -> float:
    """The rate of step number `step`, from 0."""
    warm = min(1.0, (step + 1) / recipe.warmup) if recipe.warmup else 1.0
    done = step / recipe.steps
    match recipe.schedule:
        case "step":
            factor = 1.0 if step < restart_step(recipe) else 0.1
        case "linear":
            factor = 1 - done
        case "cosine":
            factor = (1 + math.cos(math.pi * done)) / 2
        case _:
            factor = 1.0
    return recipe.lr * warm * factor


def restart_step(recipe: TrainRecipe) -> int:
    """The step at which the `step` schedule drops the rate and the optimiser starts afresh."""
    return recipe.steps // 2
