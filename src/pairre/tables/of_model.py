"""The tables of a model that is in this process: one for each of its parameters, with what their rows must obey.

This is where training meets the storage of a model. Over processes, entity rows are divided and all else is replicated.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from pairre.models import Model
from pairre.settings.recipe import Recipe, TrainRecipe
from pairre.support.processes import Processes
from pairre.tables.contract import EmbeddingTable
from pairre.tables.engine import make_engine
from pairre.tables.local import DenseTable, RowConstraint, local_table
from pairre.tables.partial import FixedTable, PartialTable
from pairre.tables.replicated import ReplicatedTable, ReplicatedWeights
from pairre.tables.sharded import ShardedTable


def learning_tables(
    model: Model, recipe: TrainRecipe, *, relations: Tensor | None = None, frozen: Tensor | None = None
) -> dict[str, EmbeddingTable]:
    """Return the tables of a model, each with its optimiser; `relations` are updated in place of the model's rows.

    Rows of entities with the ids `frozen` [N] never move.
    """
    tables: dict[str, EmbeddingTable] = {}
    for name, parameter in model.named_parameters():
        rows = relations if relations is not None and name == "relation" else parameter.detach()
        if frozen is not None and name == "entity":
            tables[name] = _without(frozen, model, recipe)
        else:
            table = local_table(rows, recipe, _constraint(model, name))
            tables[name] = DenseTable(table, parameter) if name == "weights" else table
    return tables


def tables_over_processes(model: Model, recipe: Recipe, processes: Processes) -> dict[str, EmbeddingTable]:
    """Return the tables of a model that does not hold its entities: their rows are drawn here, a part on each rank."""
    tables: dict[str, EmbeddingTable] = {}
    for name, parameter in model.named_parameters():
        constraint = _constraint(model, name)
        if name == "entity":
            draw = partial(model.initial_rows, name, bound=recipe.init_range, seed=recipe.train.seed)
            tables[name] = ShardedTable(
                processes, len(parameter), draw, make_engine(processes, model, recipe, constraint)
            )
            continue
        table = local_table(parameter.detach(), recipe.train, constraint)
        if name == "weights":
            tables[name] = ReplicatedWeights(processes, DenseTable(table, parameter))
        else:
            tables[name] = ReplicatedTable(processes, table)
    return tables


def tables_of_some_entities(model: Model, entities: Tensor, recipe: TrainRecipe) -> dict[str, EmbeddingTable]:
    """Return the tables of a model of which the rows of some entities [M] learn, and nothing else."""
    return {
        name: PartialTable(parameter.detach(), entities, recipe, _constraint(model, name))
        if name == "entity"
        else FixedTable(parameter, whole=name == "weights")
        for name, parameter in model.named_parameters()
    }


def _without(frozen: Tensor, model: Model, recipe: TrainRecipe) -> EmbeddingTable:
    """Return the entity table of a model of which the rows with some ids [N] never move."""
    moves = torch.ones(model.num_entities, dtype=torch.bool)
    moves[frozen] = False
    if not moves.any():
        return FixedTable(model.entity)
    moving = moves.nonzero()[:, 0].to(model.device)
    return PartialTable(model.entity.detach(), moving, recipe, _constraint(model, "entity"))


def _constraint(model: Model, name: str) -> RowConstraint | None:
    return partial(model.constrain, name) if name in model.constraints else None
