"""Plain PyTorch: the definition of correct, and the fallback where a device has no kernels of its own."""

from pairre.kernels.reference.batch import draw, known_mask
from pairre.kernels.reference.compare import compare, count_above, pairs, true_scores
from pairre.kernels.reference.loss import self_adversarial, unit_rows
from pairre.kernels.reference.rows import adagrad_rows, adam_rows, group, read_adam, read_rows, settle

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
