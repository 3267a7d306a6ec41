"""Objects in memory as sources of triples: how the kind of an object decides which function reads it.

Every module in this folder that calls `register` is a kind, and nothing else has to name it. No package of an object is
imported to recognise it, so that none of them has to be installed.
"""

import pkgutil
from importlib import import_module

from pairre.graph.sources.registry import SourceKind, kinds, read_source, register, with_weights

__all__ = ["SourceKind", "kinds", "read_source", "register", "with_weights"]

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
