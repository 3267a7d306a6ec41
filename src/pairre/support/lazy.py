"""Public names that are imported when they are first used, so that the command line starts without loading torch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_attributes(package: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports its public names in a block `if TYPE_CHECKING:` only.

    A name is imported from the module that the block names when it is first used; from then on it is an attribute.
    """

    @cache
    def modules() -> dict[str, str]:
        source = Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
        blocks = [node.body for node in ast.parse(source).body if isinstance(node, ast.If)]
        imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
        return {alias.name: str(node.module) for node in imports for alias in node.names}

    def find(name: str) -> Any:
        if name not in modules():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
