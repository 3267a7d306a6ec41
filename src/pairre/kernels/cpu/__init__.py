"""Kernels for the CPU, compiled by numba; an operation that is not worth a kernel is that of the reference."""

from functools import partial

import torch.nn.functional as F

from pairre.kernels.backend import Backend
from pairre.kernels.cpu import batch, collect, ranks, rows, scores


class CpuBackend(Backend):
    """The operations with kernels for the CPU."""

    score_candidates = staticmethod(scores.score_candidates)
    true_scores = staticmethod(ranks.true_scores)
    count_above = staticmethod(ranks.count_above)
    collect_above = staticmethod(collect.collect_above)
    unit_rows = staticmethod(partial(F.normalize, dim=-1))
    group_ids = staticmethod(rows.group_ids)
    gather_adam = staticmethod(rows.gather_adam)
    update_adam = staticmethod(rows.update_adam)
    flush_adam = staticmethod(rows.flush_adam)
    update_adagrad = staticmethod(rows.update_adagrad)
    draw_batch = staticmethod(batch.draw_batch)
    known_mask = staticmethod(batch.known_mask)
