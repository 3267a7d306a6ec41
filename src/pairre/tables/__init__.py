"""Embedding tables with their optimiser: gather rows by id, update them, flush what was deferred, checkpoint state.

Decided here: where rows live and how they are updated. Nothing outside this folder assumes that a table is local.
"""

from pairre.tables.contract import EmbeddingTable, Gathered
from pairre.tables.local import OPTIMIZERS, DenseTable, LocalTable, TableGroup, local_table
from pairre.tables.optimizers import AdagradTable, AdamTable
from pairre.tables.schedule import learning_rates, restart_step

__all__ = [
    "OPTIMIZERS",
    "AdagradTable",
    "AdamTable",
    "DenseTable",
    "EmbeddingTable",
    "Gathered",
    "LocalTable",
    "TableGroup",
    "learning_rates",
    "local_table",
    "restart_step",
]
