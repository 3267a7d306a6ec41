"""Names that recipe keys with an open set of choices accept.

The module that defines a loss, an optimiser or a regulariser adds its name here, with one line of help. Settings stay
below training in the import order, and a module from outside the package adds a choice in the same way.
"""

from __future__ import annotations

LOSSES: dict[str, str] = {}  # filled by training.losses
OPTIMIZERS: dict[str, str] = {}  # filled by tables.local
REGULARIZERS: dict[str, str] = {
    "none": "no penalty",
    "l2": "sum of squares",
    "n3": "sum of cubes of absolute values, made for 1-vs-all training of products",
}
