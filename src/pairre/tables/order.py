"""The order of the rows of a table that is divided over processes: a bijection of ids that is computed, not stored.

Ids in the order of first sight have the frequent entities at their beginning, and one rank would have most of the work.
id → (id × a) mod E with a ≈ E / φ puts ids that follow each other far apart, as evenly as any order can.
"""

from __future__ import annotations

import math

from torch import Tensor

_GOLDEN = (math.sqrt(5) - 1) / 2


class RowOrder:
    """Where the rows of E ids are, and which id a place belongs to."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self._factor = max(1, round(num_rows * _GOLDEN))
        while math.gcd(self._factor, num_rows) != 1:
            self._factor += 1
        self._inverse = pow(self._factor, -1, num_rows)

    def places(self, ids: Tensor) -> Tensor:
        """Return the places of ids, int64; a product stays below 2⁶³ for E < 2³¹."""
        return ids * self._factor % self.num_rows

    def ids(self, places: Tensor) -> Tensor:
        """Return the ids of places, int64."""
        return places * self._inverse % self.num_rows
