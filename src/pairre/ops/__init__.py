"""The hot operations, each with one signature and a backend by device: numba on the CPU, plain PyTorch elsewhere.

A GPU kernel goes beside `cpu.py` with the same functions and is added to `_BACKENDS`; nothing else changes.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from types import ModuleType

from torch import Tensor

from pairre.errors import DeviceError
from pairre.ops import cpu, reference

log = logging.getLogger("pairre")
_BACKENDS: dict[str, ModuleType] = {"cpu": cpu}


@cache
def backend(device_type: str) -> ModuleType:
    """The module that computes for a device; a fallback is said once. PAIRRE_OPS=reference forces plain PyTorch."""
    forced = os.environ.get("PAIRRE_OPS", "")
    if forced not in ("", "reference"):
        raise DeviceError(f"PAIRRE_OPS={forced}: unknown; only 'reference' can be forced")
    if forced or device_type not in _BACKENDS:
        why = "PAIRRE_OPS is set" if forced else f"no kernels for {device_type} yet"
        log.warning("scores are computed by plain PyTorch, which is slower (%s)", why)
        return reference
    return _BACKENDS[device_type]


def weighted_l1(query: Tensor, scale: Tensor, candidates: Tensor, ids: Tensor | None = None) -> Tensor:
    """score[b, k] = −Σ_d |query[b, d] − scale[b, d] · candidate[d]|; see `reference.weighted_l1`."""
    result: Tensor = backend(query.device.type).weighted_l1(query, scale, candidates, ids)
    return result
