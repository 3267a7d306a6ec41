"""The models, one file a family: what an author writes is `contract.py`, what is derived from it `scoring.py`.

Decided here: every score function. A subclass of `Model` with a `name` registers itself, in this folder or outside.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import cast

from pairre.models.contract import REGISTRY, Query
from pairre.models.ensemble import Ensemble
from pairre.models.entity_rules import EntityRules
from pairre.models.negative_layouts import Chunked, EntityRows, NegativeLayout, Own, RelationGroups, Shared
from pairre.models.rule_model import RuleModel
from pairre.models.rule_scores import RuleScores
from pairre.models.scoring import LocalRows, Model, RowSource, require_all_rows
from pairre.support.errors import RecipeError, suggest

# Patterns that relations may have, with a short name each; which of them a model can express is its `patterns`.
PATTERNS = {"symmetry": "sym", "antisymmetry": "asym", "inverse": "inv", "composition": "comp", "subrelation": "sub"}
_FIRST = ("pairre", "translation", "gaussian", "rotation")  # families in the order of tables; others follow by name
__all__ = [
    "PATTERNS",
    "Chunked",
    "Ensemble",
    "EntityRows",
    "EntityRules",
    "LocalRows",
    "Model",
    "NegativeLayout",
    "Own",
    "PairRE",
    "Query",
    "RelationGroups",
    "RowSource",
    "RuleModel",
    "RuleScores",
    "Shared",
    "model_class",
    "models",
    "require_all_rows",
]

for _family in (*_FIRST, *sorted({module.name for module in iter_modules(__path__)} - set(_FIRST))):
    import_module(f"pairre.models.{_family}")

from pairre.models.pairre import PairRE


def models() -> tuple[type[Model], ...]:
    """Return every model that is defined, those of plug-ins included."""
    return tuple(cast(type[Model], model) for model in REGISTRY.values())


def model_class(name: str) -> type[Model]:
    """Return a model by the name that recipes use."""
    if name == Ensemble.name:
        raise RecipeError(
            "model.name: an ensemble is made of runs, not trained; change its members, then "
            "pairre ensemble RUN RUN --out NEW"
        )
    if name not in REGISTRY:
        raise RecipeError(
            f"model.name: no model '{name}'{suggest(name, REGISTRY)}; models: {', '.join(REGISTRY)}; "
            "one that is defined outside the package needs its plug-in: pairre --plugin MODULE …"
        )
    return cast(type[Model], REGISTRY[name])
