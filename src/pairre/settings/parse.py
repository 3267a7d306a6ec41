"""Make a recipe from nested values or `section.key=value` texts: types, bounds, and the old names of keys."""

from __future__ import annotations

import json
import logging
import math
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, replace
from typing import Any, Literal, get_args, get_origin

from pairre.settings.recipe import Recipe
from pairre.support.errors import RecipeError, suggest

_log = logging.getLogger(__name__)

# Keys under the names that they had in earlier versions.
OLD_NAMES = {
    "model.unit": "model.unit_norm",
    "loss.relations": "loss.relation_weight",
    "loss.weighting": "loss.subsampling",
    "loss.flattening": "loss.query_balance",
    "sampling.share": "sampling.chunk_size",
    "sampling.typed": "sampling.same_type",
    "train.rows": "train.update_rows",
}
_REMOVED = {"train.average": "let the learning rate fall instead, as with train.schedule=linear"}


def from_values(values: Mapping[str, Any], base: Recipe | None = None, *, stored: bool = False) -> Recipe:
    """Return a base recipe with nested values set in it; unknown keys and wrong types are refused by their path.

    `stored` is for the recipe of a run folder, which nobody edits: old key names are not reported, and names of losses
    and optimisers that no loaded module defines are accepted, since evaluating a run does not need them.
    """
    result = base or Recipe()
    sections = [f.name for f in fields(Recipe)]
    for section, entries in values.items():
        if section not in sections:
            raise RecipeError(
                f"{section}: unknown section{suggest(section, sections)}; sections: {', '.join(sections)}"
            )
        if not isinstance(entries, Mapping):
            raise RecipeError(f"{section}: a section of keys expected, not {_type_name(entries)}")
        changed = _checked_section(section, getattr(result, section), entries, stored)
        result = replace(result, **{section: changed})
    return result


def override(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """Return a recipe with `section.key=value` settings applied; values are as in TOML, a bare word is a string."""
    for setting in settings:
        path, equals, text = setting.partition("=")
        section, dot, key = path.strip().partition(".")
        if not equals or not dot:
            raise RecipeError(f"--set {setting}: write section.key=value, e.g. --set train.lr=1e-3")
        try:
            value = tomllib.loads(f"value = {text.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        recipe = from_values({section: {key: value}}, recipe)
    return recipe


def _checked_section(section: str, part: Any, entries: Mapping[str, Any], stored: bool) -> Any:
    known = {f.name: f for f in fields(part)}
    hints = typing.get_type_hints(type(part))
    checked = {}
    for written, value in entries.items():
        path = _current_path(f"{section}.{written}", value, stored)
        if path is None:
            continue
        key = path.removeprefix(f"{section}.")
        if key not in known:
            raise RecipeError(f"{path}: unknown key{suggest(key, known)}")
        checked[key] = _checked(path, value, hints[key], known[key], stored)
    return replace(part, **checked)


def _current_path(path: str, value: Any, stored: bool) -> str | None:
    """Return today's name of a key, or None for a removed key that changes nothing."""
    if path in _REMOVED:
        if value != 0:
            raise RecipeError(f"{path}: removed; {_REMOVED[path]}")
        return None
    if path in OLD_NAMES and not stored:
        _log.warning("%s is now %s", path, OLD_NAMES[path])
    return OLD_NAMES.get(path, path)


def _checked(path: str, value: Any, hint: Any, declaration: Field[Any], stored: bool) -> Any:
    """Return the value as the declared type, or raise an error that names the path."""
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise RecipeError(f"{path}: a list of numbers expected, as in [0.2, 0.5], not {_type_name(value)}")
        return tuple(_checked(path, one, get_args(hint)[0], declaration, stored) for one in value)
    choices = get_args(hint) if get_origin(hint) is Literal else None if stored else declaration.metadata["choices"]
    if choices is not None:
        check_choice(path, value, choices)
        return value
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        shown = json.dumps(value, default=str)
        raise RecipeError(f"{path}: {_type_name(hint)} expected, not {_type_name(value)} ({shown})")
    if isinstance(value, float) and not math.isfinite(value):
        raise RecipeError(f"{path}: a finite number expected, not {value}")
    low = declaration.metadata["low"]
    if low is not None and value < low:
        raise RecipeError(f"{path}: {value} is below the least value, {low}")
    return value


def check_choice(path: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse a value that is none of the choices."""
    names = list(choices)
    if value not in names:
        raise RecipeError(f"{path}: {value!r} is not one of {', '.join(names)}{suggest(str(value), names)}")


def _type_name(value: Any) -> str:
    names: dict[type, str] = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    kind = value if isinstance(value, type) else type(value)
    return names.get(kind, f"a {kind.__name__}")
