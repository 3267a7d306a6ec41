"""Names that recipe keys with an open set of choices accept.

The module that defines a loss, a regulariser or an optimiser adds its name here, with one line of help; one from
outside the package does the same. Settings stay below training in the import order: the modules of the package that
define choices are imported by name when these are first listed (decision 11).
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from importlib import import_module


class Choices(UserDict[str, str]):
    """Names with a line of help each, from a module that is imported when the names are first listed."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self._module = module

    def __iter__(self) -> Iterator[str]:
        import_module(self._module)
        return super().__iter__()


LOSSES = Choices("pairre.training.losses")
OPTIMIZERS = Choices("pairre.tables")
REGULARIZERS = Choices("pairre.training.regularizers")
REGULARIZERS["none"] = "no penalty"
FOR_PRODUCTS: set[str] = set()  # regularisers that need a score that is linear in head, relation and tail
