"""Plug-ins: modules and files that a user names, which define models and losses; other processes load them, too."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from pathlib import Path

from pairre.support.errors import PairREError

loaded: list[str] = []  # what this process was told to import, for others that it starts


def load_plugin(name: str) -> None:
    """Import a plug-in: a module by its name, or a file by its path.

    A model or a loss that it defines registers itself. Nothing else ever imports code that a user did not name.
    """
    path = Path(name)
    if path.suffix == ".py":
        _load_file(path)
        loaded.append(str(path.absolute()))
    else:
        if "" not in sys.path:
            sys.path.insert(0, "")  # a module of the folder that the command runs in, as python -m finds it
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise PairREError(
                f"--plugin {name}: no module named '{error.name}'; give its name or a .py file"
            ) from error
        loaded.append(name)


def _load_file(path: Path) -> None:
    if not path.is_file():
        raise PairREError(f"--plugin {path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
