"""The hot operations: scores, ranks, rows of tables, batches and the paper's loss, each with kernels for CPU and CUDA.

Decided here: which code computes on a device. `reference` defines what is correct; `cpu` and `cuda` must agree with it.
"""

from pairre.kernels.backend import Backend, backend
from pairre.kernels.reference.batch import BatchPlan
from pairre.kernels.reference.collect import Collected
from pairre.kernels.reference.ranks import RankingBatch
from pairre.kernels.reference.rows import AdamState, IdGroups, compute_dtype
from pairre.kernels.reference.scores import BlockFormula, Metric, PairScore

__all__ = [
    "AdamState",
    "Backend",
    "BatchPlan",
    "BlockFormula",
    "Collected",
    "IdGroups",
    "Metric",
    "PairScore",
    "RankingBatch",
    "backend",
    "compute_dtype",
]
