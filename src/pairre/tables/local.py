"""Tables whose rows are all in this process, one class for each optimiser, and the tables of a model together.

An optimiser is a subclass of `LocalTable` that reads and updates rows by its kernels; its `name` is what
`train.optimizer` says. A step costs the same however large the table is. With `train.update_rows = "all"`, Adam also
moves rows without a gradient, as the paper's does, but only when they are next needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pairre.kernels import AdamState, IdGroups, backend, compute_dtype
from pairre.settings import registry
from pairre.settings.recipe import TrainRecipe
from pairre.tables.contract import EmbeddingTable, Gathered
from pairre.tables.schedule import adam_rates, learning_rates

RowConstraint = Callable[[Tensor], Tensor]  # changes rows in place to what a model allows, and returns them
_CHUNK = 1 << 24  # elements of a chunk of rows
OPTIMIZERS: dict[str, type[LocalTable]] = {}  # by name; a subclass with a name registers itself


class LocalTable:
    """A table with its optimiser; a subclass sets `read` and `apply`, its kernels, and adds the optimiser's state."""

    name: ClassVar[str]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "name" in cls.__dict__:
            OPTIMIZERS[cls.name] = cls
            registry.OPTIMIZERS[cls.name] = (cls.__doc__ or "").splitlines()[0]

    def __init__(self, table: Tensor, recipe: TrainRecipe, constraint: RowConstraint | None = None) -> None:
        self.table, self.constraint = table, constraint
        self.num_rows, self.width = table.shape
        self.kernels = backend(table.device.type)
        rates = self.rates(recipe)
        self._rates = torch.from_numpy(rates).to(table.device, compute_dtype(table.dtype))  # [steps, 2]

    # --- what an optimiser is ---

    @staticmethod
    def rates(recipe: TrainRecipe) -> np.ndarray:
        """Return what the kernel needs of every step, [steps, 2]: here the learning rate and an unused column."""
        rate = learning_rates(recipe)
        return np.stack([rate, np.ones_like(rate)], 1)

    # Return rows [N, width] as they are before a step: (ids, groups, step) → rows.
    read: Callable[[Tensor, IdGroups, Tensor], Tensor]
    # Move rows against their gradient: (groups, gathered rows, gradient, step).
    apply: Callable[[IdGroups, Tensor, Tensor, Tensor], None]

    def flush_deferred(self, step: Tensor) -> None:
        """Apply what was deferred; most optimisers defer nothing."""

    def reset(self) -> None:
        """Forget the state."""
        for tensor in self.state().values():
            tensor.zero_()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of the optimiser by name, for checkpoints."""
        return {}

    # --- what every local table does ---

    def gather(self, ids: Tensor, step: Tensor, groups: IdGroups | None = None) -> Gathered:
        """Return rows as they are before `step`, as a leaf of the computation."""
        groups = groups or self.kernels.group_ids(ids)
        rows = self.read(ids, groups, step)
        if self.constraint:
            self.constraint(rows)  # a row that caught up may be outside what is allowed
        return Gathered(rows.requires_grad_(), ids, groups)

    def update(self, gathered: Gathered, gradient: Tensor, step: Tensor) -> None:
        """Update the gathered rows, then bring them back to what the model allows."""
        self.apply(gathered.groups, gathered.rows.detach(), gradient, step)
        if self.constraint:
            ids = gathered.ids.clamp(min=0)
            self.table.index_copy_(0, ids, self.constraint(self.table[ids]))  # equal ids write equal values

    def flush(self, step: Tensor) -> None:
        """Apply what was deferred, so that every row is as after `step` steps."""
        self.flush_deferred(step)
        if self.constraint:
            self.constraint(self.table)

    def restart(self, step: Tensor) -> None:
        """Flush, then forget the state of the optimiser."""
        self.flush(step)
        self.reset()

    def local_rows(self) -> Iterator[tuple[int, Tensor]]:
        """Yield all rows in chunks, each with the id of its first row."""
        size = max(1, _CHUNK // self.width)
        for start in range(0, self.num_rows, size):
            yield start, self.table[start : start + size]


class AdamTable(LocalTable):
    """Adam (Kingma & Ba, 2015) over all rows or over the touched ones."""

    name = "adam"

    def __init__(self, table: Tensor, recipe: TrainRecipe, constraint: RowConstraint | None = None) -> None:
        super().__init__(table, recipe, constraint)
        mean, square = (torch.zeros_like(table, dtype=compute_dtype(table.dtype)) for _ in range(2))
        seen = torch.full((len(table),), -1, dtype=torch.int32, device=table.device)
        self.adam = AdamState(table, mean, square, seen if recipe.update_rows == "all" else None, self._rates)
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
        self.square = torch.zeros(len(table), dtype=compute_dtype(table.dtype), device=table.device)

    def read(self, ids: Tensor, groups: IdGroups, step: Tensor) -> Tensor:  # noqa: ARG002
        """Return rows as they are stored."""
        return self.kernels.gather_rows(self.table, ids)

    def apply(self, groups: IdGroups, rows: Tensor, gradient: Tensor, step: Tensor) -> None:  # noqa: ARG002
        """Update rows."""
        self.kernels.update_adagrad(self.table, self.square, self._rates, groups, gradient, step)

    def state(self) -> dict[str, Tensor]:
        """Return the accumulators."""
        return {"square": self.square}


class DenseTable:
    """Weights that belong to no row: all of them are updated in every step, so that nothing is ever deferred."""

    def __init__(self, table: LocalTable, parameter: Tensor) -> None:
        self._table, self._parameter = table, parameter
        self.num_rows, self.width = table.num_rows, table.width
        self.update, self.flush, self.restart = table.update, table.flush, table.restart
        self.local_rows, self.state = table.local_rows, table.state

    def gather(self, ids: Tensor, step: Tensor, groups: IdGroups | None = None) -> Gathered:  # noqa: ARG002
        """Return the weights themselves, which are what the model computes with."""
        return Gathered(self._parameter, ids, groups or self._table.kernels.group_ids(ids))


def local_table(table: Tensor, recipe: TrainRecipe, constraint: RowConstraint | None = None) -> LocalTable:
    """Return a table with the optimiser that the recipe names."""
    return OPTIMIZERS[recipe.optimizer](table, recipe, constraint)


class TableGroup:
    """The tables of a model, gathered and updated together."""

    def __init__(self, tables: Mapping[str, EmbeddingTable]) -> None:
        self.tables = dict(tables)

    def gather(self, ids: Mapping[str, Tensor], step: Tensor) -> dict[str, Gathered]:
        """Return the rows of every table."""
        return {name: table.gather(ids[name], step) for name, table in self.tables.items()}

    def update(self, gathered: Mapping[str, Gathered], gradients: Mapping[str, Tensor], step: Tensor) -> None:
        """Update the gathered rows of every table."""
        for name, table in self.tables.items():
            table.update(gathered[name], gradients[name], step)
