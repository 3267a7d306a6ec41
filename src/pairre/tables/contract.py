"""What training asks of an embedding table, wherever its rows live.

N row ids of a step (repeats are allowed, −1 means no row), E rows of the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from pairre.kernels import IdGroups


@dataclass(frozen=True)
class Gathered:
    """Rows that a step computes with, and what the table needs to update them."""

    rows: Tensor  # [N, width], a leaf: gradients are taken with respect to it
    ids: Tensor  # [N] int64
    groups: IdGroups  # of equal ids, whose gradients are added up


class EmbeddingTable(Protocol):
    """A table with its optimiser; training may not assume that all of its rows are in this process.

    `step` is a tensor with the number of the step, so that all of it can be captured in a CUDA graph.
    """

    num_rows: int
    width: int

    def gather(self, ids: Tensor, step: Tensor, groups: IdGroups | None = None) -> Gathered:
        """Return rows as they are before `step`; `groups` of the ids, where the caller computes them already.

        On a CUDA device that happens on another stream: only `update` may read them.
        """

    def update(self, gathered: Gathered, gradient: Tensor, step: Tensor) -> None:
        """Update the gathered rows by their gradient."""

    def flush(self, step: Tensor) -> None:
        """Apply what was deferred, so that every row is as after `step` steps."""

    def restart(self, step: Tensor) -> None:
        """Flush, then forget the state of the optimiser."""

    def local_rows(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the rows held here in chunks, each with the position of its first row, which need not be an id."""

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of the optimiser by name, for checkpoints."""
