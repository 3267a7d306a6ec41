"""A table whose rows are divided over processes: no process ever holds, draws, reads or writes all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pairre.kernels import IdGroups, backend
from pairre.support.processes import Processes
from pairre.tables.contract import Gathered
from pairre.tables.engine import Engine, fetch, put
from pairre.tables.order import RowOrder

_CHUNK = 1 << 22  # elements that are drawn or sent at once
RowDraw = Callable[[Tensor], Tensor]  # ids [N] → their initial rows [N, width]


@dataclass(frozen=True)
class GatheredOverProcesses(Gathered):
    """Rows of a step, which of them are rows at all, and the engine's handle to update these."""

    valid: Tensor  # positions of ids that are not −1
    handle: Any


class ShardedTable:
    """A table with its optimiser, of which this rank holds a block of places.

    `RowOrder` gives each id its place, so that frequent ids are spread over all ranks. Training asks for rows by id.
    Evaluation and files take rows in the order of ids, of which each rank then has a block: `held_to_ids`, `fill_held`.
    """

    def __init__(self, processes: Processes, num_rows: int, draw: RowDraw, engine: Engine) -> None:
        """Draw the rows that are held here."""
        self.engine, self.num_rows, self.width = engine, num_rows, engine.rows.shape[1]
        self._processes, self._order = processes, RowOrder(self.num_rows)
        self._block = -(-self.num_rows // processes.size)
        self._chunk = max(1, _CHUNK // self.width)
        device = engine.rows.device
        for first, part in self.local_rows():
            part.copy_(draw(self._order.ids(torch.arange(first, first + len(part), device=device))))
        self._no_groups = backend(device.type).group_ids(torch.empty(0, dtype=torch.int64, device=device))
        self.flush, self.restart, self.state = engine.flush, engine.restart, engine.state

    def gather(self, ids: Tensor, step: Tensor, groups: IdGroups | None = None) -> Gathered:  # noqa: ARG002
        """Return rows as they are before `step`; those of id −1 are zeros, and ask nobody."""
        valid = (ids >= 0).nonzero()[:, 0]
        found, handle = self.engine.gather(self._order.places(ids[valid]), step)
        if len(valid) < len(ids):
            found = found.new_zeros(len(ids), self.width).index_copy_(0, valid, found)
        return GatheredOverProcesses(found.requires_grad_(), ids, self._no_groups, valid, handle)

    def update(self, gathered: Gathered, gradient: Tensor, step: Tensor) -> None:
        """Update the gathered rows of all processes."""
        assert isinstance(gathered, GatheredOverProcesses)
        self.engine.update(gathered.handle, gradient[gathered.valid], step)

    def local_rows(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the rows held here in chunks, each with the place of its first row."""
        first_place = self._processes.block_of_rows(self.num_rows).start
        for start in range(0, len(self.engine.rows), self._chunk):
            yield first_place + start, self.engine.rows[start : start + self._chunk]

    # --- in the order of ids ---

    def held_to_ids(self, held: Tensor) -> Tensor:
        """Return what `held`, the rows or a state, has for this rank's block of ids; all processes call it."""
        found = held.new_empty(len(self._processes.block_of_rows(self.num_rows)), *held.shape[1:])
        for part, places in self._chunks_of_ids():
            found[part] = fetch(self._processes, held, places, self._block)
        return found

    def fill_held(self, held: Tensor, read: Callable[[int, int], Tensor]) -> None:
        """Fill `held` from `read(start, stop)`, which has rows by id; each rank asks for its block of ids."""
        first_id = self._processes.block_of_rows(self.num_rows).start
        for part, places in self._chunks_of_ids():
            values = read(first_id + part.start, first_id + part.stop).to(held.device, held.dtype)
            put(self._processes, held, places, self._block, values)

    def _chunks_of_ids(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield chunks of this rank's block of ids with the places of their rows, equally many on every rank."""
        mine = self._processes.block_of_rows(self.num_rows)
        for start in range(0, self._block, self._chunk):
            part = slice(min(start, len(mine)), min(start + self._chunk, len(mine)))
            ids = torch.arange(mine.start + part.start, mine.start + part.stop, device=self.engine.rows.device)
            yield part, self._order.places(ids)
