"""File formats: how the ending of a file decides which function reads its triples, and which formats there are.

Every module in this folder that calls `register` is a format, and nothing else has to name it: `load_graph`, the
decompression of `.gz` and `.zst`, error messages and the help of the command line follow from the registry. Code
outside the package registers a format in the same way before it calls `load_graph`.
"""

import pkgutil
from importlib import import_module

from pairre.graph.formats.registry import (
    FileFormat,
    Layout,
    TripleColumns,
    TripleFile,
    endings,
    endings_help,
    formats,
    read_triples,
    register,
)

__all__ = [
    "FileFormat",
    "Layout",
    "TripleColumns",
    "TripleFile",
    "endings",
    "endings_help",
    "formats",
    "read_triples",
    "register",
]

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
