"""What each of several processes does in `test_over_processes.py`, and one process beside them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import torch

from conftest import QUICK, planted_graph
from pairre.models import Model, model_class
from pairre.runs import build_model
from pairre.settings import Recipe, override, torchrec_lacks
from pairre.support.processes import Processes, join_processes
from pairre.tables import DividedRows, ShardedTable
from pairre.training.step import Trainer

STEPS = 12
ADAGRAD = ["train.optimizer=adagrad"]
PRODUCT = ["model.name=complex", "model.reciprocal=true", "loss.relation_weight=0.5"]
DOUBLE = "float64"  # is no setting: a model is converted
SETTINGS = {
    "adagrad": ADAGRAD,
    "elementwise adagrad": ["train.optimizer=elementwise-adagrad", "regularizer.name=l2", "regularizer.weight=0.01"],
    "adam": [],
    "adam of touched rows": ["train.update_rows=touched", "train.schedule=step"],
    "own negatives": ["sampling.chunk_size=1", *ADAGRAD],
    "chunks": ["sampling.chunk_size=2"],
    "relations": [*PRODUCT, *ADAGRAD, "train.schedule=step"],
    "constrained": ["model.name=kg2e"],
    "all entities": ["sampling.negatives=0", "loss.name=k-vs-all", "loss.subsampling=false", *ADAGRAD],
    "half precision": ["model.storage=float16", *ADAGRAD],
    DOUBLE: ADAGRAD,
}
CASES = [(name, 40) for name in SETTINGS] + [("adagrad", 2), ("own negatives", 2)]  # with more and fewer than processes
BATCH = 31  # which neither 2 nor 3 divides


def recipe_of(name: str, engine: str = "auto") -> Recipe:
    """Return the recipe of some settings."""
    return override(QUICK, [f"train.batch={BATCH}", f"train.steps={STEPS}", f"tables.engine={engine}", *SETTINGS[name]])


def cases(engine: str) -> list[tuple[str, int]]:
    """Return the settings that an engine can do, with numbers of entities."""
    recipes = {name: recipe_of(name) for name in SETTINGS}
    del recipes[DOUBLE]  # which FBGEMM does not have
    able = {name for name, r in recipes.items() if not torchrec_lacks(r, model_class(r.model.name), "cpu")}
    return [case for case in CASES if engine == "exchange" or case[0] in able]


def double_model(*arguments: Any, **named: Any) -> Model:
    """Return a model whose tables are in float64, as is then all that is computed with them."""
    model = build_model(*arguments, **named).double()
    if model.entity.is_meta:  # which `double` leaves alone
        model.entity = torch.nn.Parameter(model.entity.detach().double())
        model._note_storage()
    return model


def losses(num_entities: int, name: str, processes: Processes, engine: str = "auto") -> tuple[Trainer, list[float]]:
    """Return a trainer after some steps with the settings of a name, with the loss of each."""
    with patch("pairre.training.step.build_model", double_model) if name == DOUBLE else nullcontext():
        recipe = recipe_of(name, engine)
        trainer = Trainer(planted_graph(num_entities), recipe, torch.device("cpu"), processes=processes)
    found = []
    for _ in range(STEPS):
        trainer.advance(1)
        found.append(trainer.mean_loss(1))
    trainer.flush()
    trainer.check_finite()
    return trainer, found


def check_rows(table: ShardedTable, processes: Processes) -> None:
    """Rows come back by id as they went, whatever their type, and a source shows the same as the table."""
    block = processes.block_of_rows(table.num_rows)
    rows = table.held_to_ids(table.engine.rows)
    assert len(rows) == len(block)
    table._chunk = 3  # so that there are several, and on the last processes fewer
    assert torch.equal(rows, table.held_to_ids(table.engine.rows))
    for kind in (torch.int32, torch.float16, torch.int64):
        numbers = torch.arange(3 * table.num_rows).view(-1, 3).to(kind)
        held = torch.full((len(table.engine.rows), 3), -1, dtype=kind)
        table.fill_held(held, lambda start, stop, numbers=numbers: numbers[start:stop])
        assert torch.equal(table.held_to_ids(held), numbers[block.start : block.stop])
    source = DividedRows(processes, rows, table.num_rows)
    every = torch.arange(table.num_rows)
    gathered = source.gather(torch.stack([every, every.flip(0)]))
    shown = torch.cat([rows[:0], *(part for _, part in source.chunks(2))])
    assert torch.equal(gathered[0][block.start : block.stop], shown)
    assert torch.equal(gathered[1], gathered[0].flip(0))
    step = torch.tensor(STEPS)
    found = table.gather(torch.tensor([1, -1, 0, 1]), step).rows.detach()
    assert torch.equal(found, torch.cat([gathered[0][1:2], gathered[0][:1] * 0, gathered[0][[0, 1]]]))


def work(engine: str) -> dict[str, list[float]]:
    """Return the losses of all settings that an engine can do."""
    processes = join_processes()
    found = {}
    for name, num_entities in cases(engine):
        trainer, found[f"{name}, {num_entities} entities"] = losses(num_entities, name, processes, engine)
        table = trainer.tables.tables["entity"]
        assert table.engine.name == engine
        check_rows(table, processes)
        [same] = processes.gather(trainer.model.relation.detach()[None])
        assert (same == same[:1]).all()
    return found
