"""The models, one file a family; `MODELS` lists every one."""

from __future__ import annotations

from pairre.models.base import Model
from pairre.models.bilinear import (
    RESCAL,
    ComplEx,
    ComplExNNE,
    ComplExNNEAER,
    DistMult,
    HolE,
    QuatE,
    SeeK,
    SimplE,
    SimplEPlus,
)
from pairre.models.convolution import ConvE
from pairre.models.gaussian import KG2E, KG2EKL
from pairre.models.neighbourhood import GCOTE, RGCN
from pairre.models.pairre import PairRE, TripleRE
from pairre.models.rotation import OTE, RotatE, RotatEPair
from pairre.models.translation import SE, TransD, TransE, TransH, TranSparseSeparate, TranSparseShare, TransR
from pairre.support.errors import RecipeError, suggest

MODELS: tuple[type[Model], ...] = (
    *(PairRE, TripleRE),
    *(TransE, TransH, TransR, TransD, TranSparseShare, TranSparseSeparate, SE, KG2E, KG2EKL),
    *(RotatE, RotatEPair, OTE, GCOTE),
    *(ConvE, RGCN),
    *(RESCAL, DistMult, HolE, ComplEx, ComplExNNE, ComplExNNEAER, SimplE, SimplEPlus, SeeK, QuatE),
)
# What relations may follow, with a short name each; which of them a model can express is its `patterns`.
PATTERNS = {"symmetry": "sym", "antisymmetry": "asym", "inverse": "inv", "composition": "comp", "subrelation": "sub"}
__all__ = ["MODELS", "PATTERNS", "Model", "PairRE", "model_class"]


def model_class(name: str) -> type[Model]:
    """A model by the name that recipes use."""
    known = {model.name: model for model in MODELS}
    if name not in known:
        raise RecipeError(f"model.name: no model '{name}'{suggest(name, known)}; models: {', '.join(known)}")
    return known[name]
