"""Kernels for CUDA devices, in Triton and, where arithmetic is the limit, in CUDA C++."""

import os

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # a product and a sum are one instruction, in later versions too

from pairre.kernels.cuda.batch import draw, known_mask
from pairre.kernels.cuda.compare import pairs
from pairre.kernels.cuda.loss import self_adversarial, unit_rows
from pairre.kernels.cuda.pairre import pairre_scores
from pairre.kernels.cuda.rows import adagrad_rows, adam_rows, group, read_adam, read_rows, settle
from pairre.kernels.cuda.scores import compare, count_above, true_scores

__all__ = [
    "adagrad_rows",
    "adam_rows",
    "compare",
    "count_above",
    "draw",
    "group",
    "known_mask",
    "pairre_scores",
    "pairs",
    "read_adam",
    "read_rows",
    "self_adversarial",
    "settle",
    "true_scores",
    "unit_rows",
]
