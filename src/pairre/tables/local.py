"""Tables whose rows are all in this process, and the tables of a model together; `optimizers.py` updates the rows.

A step costs the same however large a table is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pairre.kernels import IdGroups, backend, compute_dtype
from pairre.settings import registry
from pairre.settings.recipe import TrainRecipe
from pairre.tables.contract import EmbeddingTable, Gathered
from pairre.tables.schedule import learning_rates

RowConstraint = Callable[[Tensor], Tensor]  # changes rows in place to what a model allows, and returns them
_CHUNK = 1 << 24  # elements of a chunk of rows
OPTIMIZERS: dict[str, type[LocalTable]] = {}  # by name; a subclass with a name registers itself


class LocalTable:
    """A table with its optimiser. A subclass is an optimiser: it must define `read` and `apply`.

    One with state also defines `state`; one that defers updates, `flush_deferred` and `reset`. Plain PyTorch will do.
    On a CUDA device a step is captured as a CUDA graph, so that nothing may need the value of `step` on the host:
    `rate(step)` looks its learning rate up on the device.
    """

    name: ClassVar[str]
    state_per_number: ClassVar[int] = 0  # numbers of float32 that the state has for each number of the table, about

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

    # read(ids, groups, step): return rows [N, width] as they are before a step. On a CUDA device the groups are being
    # computed on another stream meanwhile, so that only `apply` may read them.
    read: Callable[[Tensor, IdGroups, Tensor], Tensor]
    # apply(groups, gathered rows, gradient, step): move rows against their gradient.
    apply: Callable[[IdGroups, Tensor, Tensor, Tensor], None]

    def rate(self, step: Tensor) -> Tensor:
        """Return the learning rate of a step, a scalar on the device."""
        return self._rates.index_select(0, step.view(1))[0, 0]

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
            for _, rows in self.local_rows():
                self.constraint(rows)

    def restart(self, step: Tensor) -> None:
        """Flush, then forget the state of the optimiser."""
        self.flush(step)
        self.reset()

    def local_rows(self) -> Iterator[tuple[int, Tensor]]:
        """Yield all rows in chunks, each with the id of its first row."""
        size = max(1, _CHUNK // self.width)
        for start in range(0, self.num_rows, size):
            yield start, self.table[start : start + size]


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
