"""The operations that training, ranking and queries spend their time in, as one class that a device may override.

`Backend` computes everything in plain PyTorch, which defines what is correct. A subclass replaces the operations that
its device has kernels for; all operations of one name have one signature.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module

from torch import Tensor

from pairre.kernels.reference import batch, collect, messages, products, ranks, rows, scores
from pairre.support.errors import DeviceError

log = logging.getLogger("pairre")
FusedLoss = Callable[[Tensor, Tensor, Tensor | None, Tensor, float, float], Tensor]
FusedSoftmaxLoss = Callable[[Tensor, Tensor, Tensor | None, Tensor, float], Tensor]
FusedBatchScores = Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor]]
# device type → module with a `Backend` subclass of that name
_BACKENDS = {"cpu": ("pairre.kernels.cpu", "CpuBackend"), "cuda": ("pairre.kernels.cuda", "CudaBackend")}


class Backend:
    """The reference backend; each operation is documented where it is defined, under `kernels/reference/`."""

    can_capture = False  # whether all operations can be captured in a CUDA graph: none waits for the device

    # Scores of queries against candidates, counts of candidates above the true one, pairs above a threshold.
    score_candidates = staticmethod(scores.score_candidates)
    score_pairs = staticmethod(scores.pair_score)
    true_scores = staticmethod(ranks.true_scores)
    count_above = staticmethod(ranks.count_above)
    collect_above = staticmethod(collect.collect_above)
    unit_rows = staticmethod(scores.unit_rows)
    stable_product = staticmethod(scores.stable_product)
    grouped_product = staticmethod(products.grouped_product)
    block_product = staticmethod(products.block_product)
    block_messages = staticmethod(messages.block_messages)
    # Rows of an embedding table.
    group_ids = staticmethod(rows.group_ids)
    gather_rows = staticmethod(rows.gather_rows)
    gather_adam = staticmethod(rows.gather_adam)
    update_adam = staticmethod(rows.update_adam)
    flush_adam = staticmethod(rows.flush_adam)
    update_adagrad = staticmethod(rows.update_adagrad)
    # The batch of a step.
    draw_batch = staticmethod(batch.draw_batch)
    known_mask = staticmethod(batch.known_mask)

    def __init__(self) -> None:
        # Fused kernels, which only some devices have; without one, the plain code beside the call is used.
        self.self_adversarial: FusedLoss | None = None
        self.cross_entropy: FusedSoftmaxLoss | None = None
        self.max_fused_negatives = 0  # of one positive, that `self_adversarial` takes
        self.pairre_batch_scores: FusedBatchScores | None = None


@cache
def backend(device_type: str) -> Backend:
    """Return the backend of a device type; a fallback to plain PyTorch is logged once.

    The environment variable `PAIRRE_OPS=reference` forces plain PyTorch.
    """
    forced = os.environ.get("PAIRRE_OPS", "")
    if forced not in ("", "reference"):
        raise DeviceError(f"PAIRRE_OPS={forced}: unknown; only 'reference' can be forced")
    reason = "PAIRRE_OPS is set" if forced else f"there are no kernels for {device_type}"
    if not forced and device_type in _BACKENDS:
        module, name = _BACKENDS[device_type]
        try:
            found: type[Backend] = getattr(import_module(module), name)
            return found()
        except ModuleNotFoundError as error:
            reason = f"{error.name} is not installed"
    log.warning("scores are computed by plain PyTorch, which is slower (%s)", reason)
    return Backend()
