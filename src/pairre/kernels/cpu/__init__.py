"""Kernels for the CPU, in numba; what is not worth one comes from the reference."""

from pairre.kernels.cpu.compare import compare, pairs
from pairre.kernels.cpu.count import count_above, true_scores
from pairre.kernels.cpu.rows import adagrad_rows, adam_rows, group, read_adam, read_rows, settle
from pairre.kernels.reference.batch import draw, known_mask
from pairre.kernels.reference.loss import self_adversarial, unit_rows

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
