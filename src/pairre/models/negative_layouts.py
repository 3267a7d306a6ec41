"""How the entities of a batch are laid out in memory: one type for each way of sharing negatives.

B positives, K negatives of each, M rows of negatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class RelationGroups:
    """The distinct relations of a batch, G of them: as many as there may be, whatever the batch has."""

    number: Tensor  # [B]: the group of each positive
    first: Tensor | None = None  # [G]: a positive of each; None where a step has one relation row for each group


@dataclass(frozen=True)
class Shared:
    """All positives share the M = K rows.

    `relation_groups` spare a model that projects entities most of its work where a batch has few relations.
    """

    relation_groups: RelationGroups | None = None

    def rows_of_each(self, rows: Tensor, batch_size: int) -> Tensor:  # noqa: ARG002
        """Return the negatives of every positive, [1, K, ·]."""
        return rows[None]


@dataclass(frozen=True)
class Chunked:
    """Rows are `num_sets` sets of K; each set is shared by `chunk_size` consecutive positives."""

    num_sets: int
    chunk_size: int

    def rows_of_each(self, rows: Tensor, batch_size: int) -> Tensor:
        """Return the negatives of every positive, [B, K, ·]."""
        sets = rows.view(self.num_sets, -1, rows.shape[1])
        return sets.repeat_interleave(self.chunk_size, 0)[:batch_size]


@dataclass(frozen=True)
class Own:
    """Every positive has negatives of its own; distinct ones are rows, and `positions` says which belong to whom."""

    positions: Tensor  # [B, K]

    def rows_of_each(self, rows: Tensor, batch_size: int) -> Tensor:  # noqa: ARG002
        """Return the negatives of every positive, [B, K, ·]."""
        return F.embedding(self.positions, rows)  # unlike an index, with the same gradient in every run


@dataclass(frozen=True)
class EntityRows:
    """The entity rows of a batch, split once: the gradient of each further split would be as large as all rows."""

    rows: Tensor  # [2 B + M, ·]: anchors, true entities, negatives
    size: int  # B

    @property
    def anchor_and_true(self) -> Tensor:
        """Rows of anchors, then of the true entities, [2 B, ·]."""
        return self._split[0]

    @property
    def negatives(self) -> Tensor:
        """Rows of negatives, [M, ·]."""
        return self._split[1]

    @cached_property
    def _split(self) -> tuple[Tensor, Tensor]:
        positives, negatives = torch.split(self.rows, [2 * self.size, len(self.rows) - 2 * self.size])
        return positives, negatives


NegativeLayout = Shared | Chunked | Own
