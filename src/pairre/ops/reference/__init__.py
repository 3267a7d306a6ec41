from pairre.ops.reference.batch import draw, known_mask

try:
    from pairre.ops.reference.compare import compare, pairs
except ImportError:  # TEMPORARY
    import torch

    from pairre.ops.reference.compare import weighted_l1
    def compare(kind, q, w, c, ids=None, weights=None): return weighted_l1(q, w, c, ids)
    def pairs(kind, q, w, c): return weighted_l1(q, w, c, torch.arange(len(q), device=q.device)[:, None])[:, 0]
from pairre.ops.reference.loss import self_adversarial, unit_rows
from pairre.ops.reference.rows import adagrad_rows, adam_rows, group, read_adam, read_rows, settle

__all__ = [
    "adagrad_rows",
    "adam_rows",
    "compare",
    "draw",
    "group",
    "known_mask",
    "pairs",
    "read_adam",
    "read_rows",
    "self_adversarial",
    "settle",
    "unit_rows",
]
