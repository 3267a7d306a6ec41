"""Kernels for CUDA devices, in Triton and, where arithmetic is the limit, in CUDA C++."""

import os

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # a product and a sum are one instruction, in later versions too

from pairre.kernels.backend import Backend
from pairre.kernels.cuda import batch, collect, loss, messages, pairre, products, rows, scores


class CudaBackend(Backend):
    """The operations with kernels for CUDA devices: all of them."""

    can_capture = True
    score_candidates = staticmethod(scores.score_candidates)
    score_pairs = staticmethod(scores.score_pairs)
    true_scores = staticmethod(scores.true_scores)
    count_above = staticmethod(scores.count_above)
    collect_above = staticmethod(collect.collect_above)
    unit_rows = staticmethod(loss.unit_rows)
    stable_product = staticmethod(products.stable_product)
    grouped_product = staticmethod(products.grouped_product)
    block_product = staticmethod(products.block_product)
    block_messages = staticmethod(messages.block_messages)
    group_ids = staticmethod(rows.group_ids)
    gather_rows = staticmethod(rows.gather_rows)
    gather_adam = staticmethod(rows.gather_adam)
    update_adam = staticmethod(rows.update_adam)
    flush_adam = staticmethod(rows.flush_adam)
    update_adagrad = staticmethod(rows.update_adagrad)
    draw_batch = staticmethod(batch.draw_batch)
    known_mask = staticmethod(batch.known_mask)

    def __init__(self) -> None:
        super().__init__()
        self.self_adversarial = loss.self_adversarial
        self.cross_entropy = loss.cross_entropy
        self.max_fused_negatives = loss.MAX_NEGATIVES
        self.pairre_batch_scores = pairre.pairre_batch_scores
