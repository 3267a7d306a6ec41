"""Tables of which only some rows learn, or none: the others are read by every step, and keep their bits.

The optimiser's state is that of the learning rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pairre.kernels import IdGroups, backend
from pairre.settings.recipe import TrainRecipe
from pairre.support.host_memory import zeros_beside
from pairre.tables.contract import Gathered
from pairre.tables.local import RowConstraint, local_table


class PartialTable:
    """A table whose rows with the given ids learn; `flush` writes them back into it."""

    def __init__(
        self, table: Tensor, ids: Tensor, recipe: TrainRecipe, constraint: RowConstraint | None = None
    ) -> None:
        self.num_rows, self.width = table.shape
        self._whole, self._ids = table, ids
        self._kernels = backend(table.device.type)
        learning = zeros_beside(table, (len(ids), self.width), table.dtype)
        self._learning = local_table(torch.index_select(table, 0, ids, out=learning), recipe, constraint)
        self._place = torch.full((len(table),), -1, device=table.device)
        self._place[ids] = torch.arange(len(ids), device=table.device)

    def gather(self, ids: Tensor, step: Tensor, groups: IdGroups | None = None) -> Gathered:  # noqa: ARG002
        """Return rows; those that stay as they are count as no row when the table is updated."""
        place = torch.where(ids < 0, -1, self._place[ids.clamp(min=0)])
        learning = self._learning.gather(place, step)
        staying = self._kernels.gather_rows(self._whole, ids)
        rows = torch.where((place >= 0)[:, None], learning.rows.detach(), staying)
        return Gathered(rows.requires_grad_(), place, learning.groups)

    def update(self, gathered: Gathered, gradient: Tensor, step: Tensor) -> None:
        """Update the gathered rows that learn."""
        self._learning.update(gathered, gradient, step)

    def flush(self, step: Tensor) -> None:
        """Apply what was deferred, and write the learning rows into the whole table."""
        self._learning.flush(step)
        self._whole[self._ids] = self._learning.table

    def restart(self, step: Tensor) -> None:
        """Flush, then forget the state of the optimiser."""
        self._learning.restart(step)

    def state(self) -> dict[str, Tensor]:
        """Return the rows that learn, which the whole table has after `flush` only, and their optimiser's state."""
        return {"rows": self._learning.table, **self._learning.state()}

    def local_rows(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the rows that learn, in chunks; no other can have changed."""
        yield from self._learning.local_rows()


class FixedTable:
    """A table of which nothing learns; with `whole`, what is gathered is the parameter itself, as of dense weights."""

    def __init__(self, parameter: Tensor, whole: bool = False) -> None:
        self.num_rows, self.width = parameter.shape
        self._parameter, self._whole = parameter, whole
        self._kernels = backend(parameter.device.type)

    def gather(self, ids: Tensor, step: Tensor, groups: IdGroups | None = None) -> Gathered:  # noqa: ARG002
        """Return rows as they are stored."""
        rows = self._parameter
        if not self._whole:
            rows = self._kernels.gather_rows(rows.detach(), ids).requires_grad_()
        return Gathered(rows, ids, groups or self._kernels.group_ids(ids))

    def update(self, gathered: Gathered, gradient: Tensor, step: Tensor) -> None:
        """Change nothing."""

    def flush(self, step: Tensor) -> None:
        """Change nothing."""

    def restart(self, step: Tensor) -> None:
        """Change nothing."""

    def local_rows(self) -> Iterator[tuple[int, Tensor]]:
        """Yield nothing: no row can have changed."""
        yield from ()

    def state(self) -> dict[str, Tensor]:
        """Return no tensors."""
        return {}
