"""Kernels for the CPU, in numba; what is not worth one comes from the reference."""

from pairre.ops.cpu.compare import compare, pairs
from pairre.ops.cpu.count import count_above, true_scores
from pairre.ops.cpu.rows import adagrad_rows, adam_rows, group, read_adam, read_rows, settle
from pairre.ops.reference.batch import draw, known_mask
from pairre.ops.reference.loss import self_adversarial, unit_rows

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
