"""Plain PyTorch: the definition of correct, and the fallback where a device has no kernels of its own."""

from pairre.ops.reference.batch import draw, known_mask
from pairre.ops.reference.compare import compare, count_above, pairs, true_scores
from pairre.ops.reference.loss import self_adversarial, unit_rows
from pairre.ops.reference.rows import adagrad_rows, adam_rows, group, read_adam, read_rows, settle

__all__ = [
    "adagrad_rows",
    "adam_rows",
    "compare",
    "count_above",
    "draw",
    "group",
    "known_mask",
    "pairs",
    "read_adam",
    "read_rows",
    "self_adversarial",
    "settle",
    "true_scores",
    "unit_rows",
]
