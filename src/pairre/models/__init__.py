"""The models, one file a family; `MODELS` lists every one."""

from __future__ import annotations

from pairre.errors import RecipeError, suggest
from pairre.models.base import Model
from pairre.models.bilinear import (
    RESCAL,
    ComplEx,
    ComplExNNE,
    DistMult,
    HolE,
    QuatE,
    SeeK,
    SimplE,
    SimplEPlus,
)
from pairre.models.gaussian import KG2E, KG2EKL
from pairre.models.pairre import PairRE, TripleRE
from pairre.models.rotation import OTE, RotatE, RotatEPair
from pairre.models.translation import SE, TransD, TransE, TransH, TransR

MODELS: tuple[type[Model], ...] = (
    *(PairRE, TripleRE),
    *(TransE, TransH, TransR, TransD, SE, KG2E, KG2EKL),
    *(RotatE, RotatEPair, OTE),
    *(RESCAL, DistMult, HolE, ComplEx, ComplExNNE, SimplE, SimplEPlus, SeeK, QuatE),
)
__all__ = ["MODELS", "Model", "PairRE", "model_class"]


def model_class(name: str) -> type[Model]:
    """A model by the name that recipes use."""
    known = {model.name: model for model in MODELS}
    if name not in known:
        raise RecipeError(f"model.name: no model '{name}'{suggest(name, known)}; models: {', '.join(known)}")
    return known[name]
