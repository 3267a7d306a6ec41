"""Make a recipe from nested values or `section.key=value` texts: types, bounds, and the old names of keys."""

from __future__ import annotations

import json
import logging
import math
import typing
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, fields, replace
from typing import Any, Literal, get_args, get_origin

from pairre.settings.recipe import Recipe
from pairre.settings.registry import Choices
from pairre.support.errors import RecipeError, suggest
from pairre.support.reading import parse_toml, shortened

Overrides = Iterable[str] | Mapping[str, Any]  # `section.key=value` texts, or values by key or by section and key
_log = logging.getLogger(__name__)
_MAX_WHOLE = 2**63 - 1  # the largest whole number that a tensor can hold

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
            known = f"{suggest(section, sections)}; sections: {', '.join(sections)}"
            raise RecipeError(f"{shortened(section)}: unknown section{known}")
        if not isinstance(entries, Mapping):
            raise RecipeError(f"{section}: a section of keys expected, not {_type_name(entries)}")
        changed = _checked_section(section, getattr(result, section), entries, stored)
        result = replace(result, **{section: changed})
    return result


def checked_recipe(recipe: Recipe) -> Recipe:
    """Return a recipe that was built in Python with every value checked as one from a file is."""
    return from_values(asdict(recipe))


def settings_list(overrides: Overrides) -> list[str]:
    """Return overrides as `section.key=value` texts, as the command line takes them."""
    if isinstance(overrides, str):
        raise RecipeError(f"overrides: a list such as ['{shortened(overrides)}'] or a mapping expected, not a text")
    if isinstance(overrides, Mapping):
        values: dict[str, Any] = {}
        for key, value in overrides.items():
            if isinstance(value, Mapping):  # {"model": {"dim": 16}} as {"model.dim": 16}
                values |= {f"{key}.{name}": inner for name, inner in value.items()}
            else:
                values[key] = value
        return [f"{key}={json.dumps(value, default=str)}" for key, value in values.items()]
    return list(overrides)


def override(recipe: Recipe, settings: Overrides) -> Recipe:
    """Return a recipe with `section.key=value` settings applied; values are as in TOML, a bare word is a string."""
    for setting in settings_list(settings):
        path, equals, text = setting.partition("=")
        section, dot, key = path.strip().partition(".")
        if not equals or not dot:
            raise RecipeError(f"--set {shortened(setting)}: write section.key=value, e.g. --set train.lr=1e-3")
        try:
            value = parse_toml(f"value = {text.strip()}")["value"]
        except ValueError:
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
            raise RecipeError(f"{shortened(path)}: unknown key{suggest(key, known)}")
        checked[key] = _checked(path, value, hints[key], known[key], stored)
    if section == "train" and "steps" in checked:
        checked.setdefault("epochs", 0)  # which would else decide the steps
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
    if type(value) is int and abs(value) > _MAX_WHOLE and hint in (int, float):
        raise RecipeError(f"{path}: a whole number of at most {_MAX_WHOLE} expected, not one of so many digits")
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        given = f" ({shortened(json.dumps(value))})" if isinstance(value, bool | float | str) else ""
        raise RecipeError(f"{path}: {_type_name(hint)} expected, not {_type_name(value)}{given}")
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
        given = repr(value) if isinstance(value, str) else _type_name(value)
        hint = suggest(value, names) if isinstance(value, str) else ""
        if isinstance(choices, Choices):
            hint += "; one that is defined outside the package needs its plug-in: pairre --plugin MODULE …"
        raise RecipeError(f"{path}: {shortened(given)} is not one of {', '.join(names)}{hint}")


def _type_name(value: Any) -> str:
    names: dict[type, str] = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    names |= {list: "a list", tuple: "a list", dict: "a table"}
    kind = value if isinstance(value, type) else type(value)
    return names.get(kind, f"a {kind.__name__}")
