"""Recipes that come with the package: one TOML file for each graph, and presets of models in groups.

`recipes/NAME.toml` is a graph recipe, named NAME. `presets/GROUP.toml` has a table for each preset, named GROUP/TABLE:
`small/complex` is for tiny graphs, `fb15k-237/complex` for FB15k-237.
"""

from __future__ import annotations

import logging
import tomllib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from pairre.support.errors import RecipeError, suggest

_log = logging.getLogger(__name__)
_OLD_GROUP = "fb15k-237"  # earlier versions called the presets of this group fb15k-237-MODEL


def graph_recipes() -> dict[str, str]:
    """Return the graph recipes by name, each with what it is for: the first line of its file."""
    texts = {name: file.read_text(encoding="utf-8") for name, file in _files("recipes").items()}
    return {name: text.splitlines()[0].removeprefix("#").strip() for name, text in texts.items()}


def presets() -> dict[str, str]:
    """Return the presets of models by name (`GROUP/MODEL`), each with what it is for."""
    return {
        f"{group}/{name}": values.get("purpose", f"{name} on tiny graphs, chosen on validation splits.")
        for group, tables in _groups().items()
        for name, values in tables.items()
    }


def shipped_values(name: str) -> dict[str, Any]:
    """Return the sections of a graph recipe or a preset; a name of earlier versions is understood and logged."""
    files = _files("recipes")
    if name in files:
        return tomllib.loads(files[name].read_text(encoding="utf-8"))
    today = name.replace(f"{_OLD_GROUP}-", f"{_OLD_GROUP}/", 1)
    if today != name and today in presets():
        _log.warning("recipe %s is now %s", name, today)
        name = today
    group, _, preset = name.partition("/")
    if preset not in _groups().get(group, {}):
        raise RecipeError(_unknown(name))
    values = {key: value for key, value in _groups()[group][preset].items() if key != "purpose"}
    return {**values, "model": {"name": preset, **values.get("model", {})}}


def _unknown(name: str) -> str:
    """Return the error for a name that is neither a recipe nor a preset."""
    written = [preset for preset in presets() if preset.partition("/")[2] == name]
    if written:
        return f"{name}: a model, not a recipe; write {' or '.join(written)}, or --set model.name={name} for this graph"
    names = [*graph_recipes(), *presets()]
    return (
        f"{name}: no such recipe file or name{suggest(name, names)}; names: {', '.join(graph_recipes())}, and "
        f"{', '.join(f'{group}/MODEL' for group in _groups())}"
    )


def _files(folder: str) -> dict[str, Traversable]:
    files = (resources.files("pairre.settings") / folder).iterdir()
    found = {file.name.removesuffix(".toml"): file for file in files if file.name.endswith(".toml")}
    return dict(sorted(found.items()))


@cache
def _groups() -> dict[str, dict[str, dict[str, Any]]]:
    return {group: tomllib.loads(file.read_text(encoding="utf-8")) for group, file in _files("presets").items()}
