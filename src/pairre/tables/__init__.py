"""Embedding tables with their optimiser: gather rows by id, update them, flush what was deferred, checkpoint state.

Decided here: how rows are updated, and where they are while a model learns. Training knows no more of a table than
`EmbeddingTable` says, and whatever uses a model no more than `models.RowSource` does. An optimiser is a class in
`optimizers.py`, a way to divide a table an engine (`engine.py`).
"""

from pairre.tables.contract import EmbeddingTable, Gathered
from pairre.tables.divided_rows import DividedRows
from pairre.tables.local import OPTIMIZERS, DenseTable, LocalTable, TableGroup, local_table
from pairre.tables.of_model import learning_tables, tables_of_some_entities, tables_over_processes
from pairre.tables.optimizers import AdagradTable, AdamTable
from pairre.tables.partial import FixedTable, PartialTable
from pairre.tables.schedule import learning_rates, restart_step
from pairre.tables.sharded import ShardedTable

__all__ = [
    "OPTIMIZERS",
    "AdagradTable",
    "AdamTable",
    "DenseTable",
    "DividedRows",
    "EmbeddingTable",
    "FixedTable",
    "Gathered",
    "LocalTable",
    "PartialTable",
    "ShardedTable",
    "TableGroup",
    "learning_rates",
    "learning_tables",
    "local_table",
    "restart_step",
    "tables_of_some_entities",
    "tables_over_processes",
]
