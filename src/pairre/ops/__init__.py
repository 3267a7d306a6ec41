"""The hot operations, each with one signature and a backend by device: numba on the CPU, Triton on a CUDA device.

A backend is a module with the functions of `reference.py`; another one goes beside them and into `_BACKENDS`.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib import import_module
from types import ModuleType

from torch import Tensor

from pairre.errors import DeviceError
from pairre.ops import reference
from pairre.ops.reference import AdamStep

__all__ = ["AdamStep", "backend", "weighted_l1"]

log = logging.getLogger("pairre")
_BACKENDS = {"cpu": "pairre.ops.cpu", "cuda": "pairre.ops.gpu"}


@cache
def backend(device_type: str) -> ModuleType:
    """The module that computes for a device; a fallback is said once. PAIRRE_OPS=reference forces plain PyTorch."""
    forced = os.environ.get("PAIRRE_OPS", "")
    if forced not in ("", "reference"):
        raise DeviceError(f"PAIRRE_OPS={forced}: unknown; only 'reference' can be forced")
    why = "PAIRRE_OPS is set" if forced else f"no kernels for {device_type}"
    if not forced and device_type in _BACKENDS:
        try:
            return import_module(_BACKENDS[device_type])
        except ModuleNotFoundError as error:
            why = f"{error.name} is not installed"
    log.warning("scores are computed by plain PyTorch, which is slower (%s)", why)
    return reference


def weighted_l1(query: Tensor, scale: Tensor, candidates: Tensor, ids: Tensor | None = None) -> Tensor:
    """score[b, k] = −Σ_d |query[b, d] − scale[b, d] · candidate[d]|; see `reference.weighted_l1`."""
    result: Tensor = backend(query.device.type).weighted_l1(query, scale, candidates, ids)
    return result
