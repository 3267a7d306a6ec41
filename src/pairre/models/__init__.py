"""The models, one file a family; `MODELS` lists every one."""

from __future__ import annotations

from pairre.errors import RecipeError, suggest
from pairre.models.base import Model
from pairre.models.pairre import PairRE

MODELS: tuple[type[Model], ...] = (PairRE,)
__all__ = ["MODELS", "Model", "PairRE", "model_class"]


def model_class(name: str) -> type[Model]:
    """A model by the name that recipes use."""
    known = {model.name: model for model in MODELS}
    if name not in known:
        raise RecipeError(f"model.name: no model '{name}'{suggest(name, known)}; models: {', '.join(known)}")
    return known[name]
