"""The rows of a table that is divided over processes, for ranking and answers: each rank holds a block of ids."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pairre.kernels import compute_dtype
from pairre.models import RowSource
from pairre.models.scoring import held_places
from pairre.support.processes import Processes


class DividedRows(RowSource):
    """A source of rows (`models.RowSource`) of which this rank holds those of `processes.block_of_rows(num_rows)`."""

    def __init__(self, processes: Processes, held: Tensor, num_rows: int) -> None:
        self.processes: Processes | None = processes
        self._all, self._held, self._mine = processes, held, processes.block_of_rows(num_rows)
        self.num_rows, self.width = num_rows, held.shape[1]

    def gather(self, ids: Tensor) -> Tensor:
        """Return the rows of some ids [*ids.shape, width]; all processes ask for the same ids."""
        flat = ids.flatten()
        here = ((flat >= self._mine.start) & (flat < self._mine.stop)).nonzero()[:, 0]
        found = torch.zeros(len(flat), self.width, dtype=compute_dtype(self._held.dtype), device=self._held.device)
        found[here] = self._held[flat[here] - self._mine.start].to(found.dtype)
        return self._all.sum(found).view(*ids.shape, self.width)

    def gather_held(self, ids: Tensor) -> tuple[int, Tensor]:
        """Return the rows of those of ids [N], ascending, that are held here, and the place of the first among ids."""
        first, stop = held_places(self, ids)
        return first, self._held[ids[first:stop] - self._mine.start].to(compute_dtype(self._held.dtype))

    def chunks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the rows that are held here in chunks of at most `size`, each with the id of its first."""
        for start in range(0, len(self._held), size):
            yield self._mine.start + start, self._held[start : start + size].to(compute_dtype(self._held.dtype))

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Store rows [N, width] of some ids; each rank keeps its own."""
        here = ((ids >= self._mine.start) & (ids < self._mine.stop)).nonzero()[:, 0]
        self._held[ids[here] - self._mine.start] = rows[here].to(self._held.dtype)
