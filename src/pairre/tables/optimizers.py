"""The optimisers: how the rows of a local table are updated, one class each.

To add one, write a subclass of `LocalTable` with a `name`, which is what `train.optimizer` says; `LocalTable` documents
what it must define. With `train.update_rows = "all"`, Adam also moves rows without a gradient, as the paper's does, but
only when they are next needed.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from pairre.kernels import AdamState, IdGroups, compute_dtype
from pairre.settings.recipe import TrainRecipe
from pairre.support.host_memory import zeros_beside
from pairre.tables.local import LocalTable, RowConstraint
from pairre.tables.schedule import adam_rates


class AdamTable(LocalTable):
    """Adam (Kingma & Ba, 2015) over all rows or over the touched ones."""

    name = "adam"
    state_per_number = 2

    def __init__(self, table: Tensor, recipe: TrainRecipe, constraint: RowConstraint | None = None) -> None:
        super().__init__(table, recipe, constraint)
        mean, square = (zeros_beside(table, table.shape, compute_dtype(table.dtype)) for _ in range(2))
        seen = zeros_beside(table, table.shape[:1], torch.int32).sub_(1) if recipe.update_rows == "all" else None
        self.adam = AdamState(table, mean, square, seen, self._rates)
        self.read = partial(self.kernels.gather_adam, self.adam)  # rows catch up with the steps they missed
        self.apply = partial(self.kernels.update_adam, self.adam)  # bias correction counts steps, not those of a row

    @staticmethod
    def rates(recipe: TrainRecipe) -> np.ndarray:
        """Return the learning rate with both bias corrections of every step."""
        return adam_rates(recipe)

    def flush_deferred(self, step: Tensor) -> None:
        """Have all rows catch up."""
        self.kernels.flush_adam(self.adam, step)

    def reset(self) -> None:
        """Forget the moments, and that any row was ever touched."""
        super().reset()
        if self.adam.seen is not None:
            self.adam.seen.fill_(-1)

    def state(self) -> dict[str, Tensor]:
        """Return both moments, and the steps that each row has seen."""
        seen = {} if self.adam.seen is None else {"seen": self.adam.seen}
        return {"mean": self.adam.mean, "square": self.adam.square, **seen}


class AdagradTable(LocalTable):
    """Row-wise Adagrad: one accumulator a row. Rows without a gradient stay as they are."""

    name = "adagrad"

    def __init__(self, table: Tensor, recipe: TrainRecipe, constraint: RowConstraint | None = None) -> None:
        super().__init__(table, recipe, constraint)
        self.square = zeros_beside(table, self.accumulator_shape(table), compute_dtype(table.dtype))

    @staticmethod
    def accumulator_shape(table: Tensor) -> torch.Size:
        """Return the shape of the accumulators."""
        return table.shape[:1]

    def read(self, ids: Tensor, groups: IdGroups, step: Tensor) -> Tensor:  # noqa: ARG002
        """Return rows as they are stored."""
        return self.kernels.gather_rows(self.table, ids)

    def apply(self, groups: IdGroups, rows: Tensor, gradient: Tensor, step: Tensor) -> None:  # noqa: ARG002
        """Update rows."""
        self.kernels.update_adagrad(self.table, self.square, self._rates, groups, gradient, step)

    def state(self) -> dict[str, Tensor]:
        """Return the accumulators."""
        return {"square": self.square}


class ElementwiseAdagradTable(AdagradTable):
    """Adagrad (Duchi et al., 2011), as `torch.optim.Adagrad`: one accumulator for each number of a row."""

    name = "elementwise-adagrad"
    state_per_number = 1

    @staticmethod
    def accumulator_shape(table: Tensor) -> torch.Size:
        """Return the shape of the accumulators."""
        return table.shape
