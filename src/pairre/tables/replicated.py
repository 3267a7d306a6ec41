"""Tables that every rank holds whole, for what is small: relations, and weights that belong to no row.

Ids and gradients go to all processes, and all make the same move in the same order, so that no row ever differs.
"""

from __future__ import annotations

from torch import Tensor

from pairre.kernels import IdGroups, backend
from pairre.support.processes import Processes
from pairre.tables.contract import EmbeddingTable, Gathered
from pairre.tables.local import LocalTable


class ReplicatedTable:
    """A local table on every rank, updated by the gradients of all."""

    def __init__(self, processes: Processes, table: LocalTable) -> None:
        self._processes, self._table = processes, table
        self._kernels = backend(table.table.device.type)
        self.num_rows, self.width = table.num_rows, table.width
        self.gather, self.flush, self.restart = table.gather, table.flush, table.restart
        self.local_rows, self.state = table.local_rows, table.state

    def update(self, gathered: Gathered, gradient: Tensor, step: Tensor) -> None:
        """Update the rows that any rank gathered."""
        ids, gradients = self._processes.gather(gathered.ids, gradient)
        self._table.update(self._table.gather(ids, step), gradients, step)


class ReplicatedWeights:
    """Weights of which every rank gathers all, so that gradients are added up instead of gathered."""

    def __init__(self, processes: Processes, table: EmbeddingTable) -> None:
        self._processes, self._table = processes, table
        self.num_rows, self.width = table.num_rows, table.width
        self.flush, self.restart = table.flush, table.restart
        self.local_rows, self.state = table.local_rows, table.state

    def gather(self, ids: Tensor, step: Tensor, groups: IdGroups | None = None) -> Gathered:
        """Return the weights."""
        return self._table.gather(ids, step, groups)

    def update(self, gathered: Gathered, gradient: Tensor, step: Tensor) -> None:
        """Update the weights by the gradients of all processes."""
        self._table.update(gathered, self._processes.sum(gradient.clone()), step)
