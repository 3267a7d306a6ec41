"""The hot operations, each with one signature and a backend by device: numba on the CPU, Triton and CUDA C++ on a GPU.

A backend is a package with the functions of `reference`; another one goes beside them and into `_BACKENDS`.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib import import_module
from types import ModuleType

from torch import Tensor

from pairre.kernels import reference
from pairre.kernels.reference.compare import Kind
from pairre.kernels.reference.rows import AdamTable, Groups
from pairre.support.errors import DeviceError

__all__ = ["AdamTable", "Groups", "Kind", "backend", "compare", "count_above", "pairs", "true_scores", "unit_rows"]

log = logging.getLogger("pairre")
_BACKENDS = {"cpu": "pairre.kernels.cpu", "cuda": "pairre.kernels.cuda"}


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


def compare(
    kind: Kind,
    query: Tensor,
    scale: Tensor | None,
    candidates: Tensor,
    ids: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Scores of queries against candidate rows; see `reference.compare`."""
    result: Tensor = backend(query.device.type).compare(kind, query, scale, candidates, ids, weights)
    return result


def pairs(kind: Kind, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """Scores [B] of query b against candidate row b; see `reference.pairs`."""
    result: Tensor = backend(query.device.type).pairs(kind, query, scale, candidates)
    return result


def true_scores(kind: Kind, query: Tensor, scale: Tensor | None, candidates: Tensor) -> Tensor:
    """Scores [B] of query b against row b, in the very bits that `count_above` compares with."""
    result: Tensor = backend(query.device.type).true_scores(kind, query, scale, candidates)
    return result


def count_above(
    kind: Kind,
    query: Tensor,
    scale: Tensor | None,
    candidates: Tensor,
    true: Tensor,
    begin: Tensor,
    end: Tensor,
    members: Tensor,
    own: Tensor,
    first: int,
) -> tuple[Tensor, Tensor]:
    """How many candidates score above true[b], and exactly as much; see `reference.count_above`."""
    counts: tuple[Tensor, Tensor] = backend(query.device.type).count_above(
        kind, query, scale, candidates, true, begin, end, members, own, first
    )
    return counts


def unit_rows(rows: Tensor) -> Tensor:
    """Rows divided by their Euclidean length."""
    result: Tensor = backend(rows.device.type).unit_rows(rows)
    return result
