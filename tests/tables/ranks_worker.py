"""What each of several ranks does in `test_over_ranks.py`, and one process beside them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from conftest import QUICK, planted_graph

# isort: split
import torch

from pairre.settings import override
from pairre.support.ranks import Ranks, join_ranks
from pairre.tables import RankRows, ShardedTable
from pairre.training.step import Trainer

STEPS = 20
PRODUCT = ["model.name=complex", "model.reciprocal=true", "loss.relation_weight=0.5"]
SETTINGS = {
    "adagrad": ["train.optimizer=adagrad"],
    "elementwise adagrad": ["train.optimizer=elementwise-adagrad", "regularizer.name=l2", "regularizer.weight=0.01"],
    "adam": [],
    "adam of touched rows": ["train.update_rows=touched", "train.schedule=step"],
    "own negatives": ["sampling.chunk_size=1"],
    "chunks": ["sampling.chunk_size=2"],
    "relations": PRODUCT,
    "constrained": ["model.name=kg2e"],
    "all entities": ["sampling.negatives=0", "loss.name=k-vs-all", "loss.subsampling=false"],
    "half precision": ["model.storage=float16", "train.optimizer=adagrad"],
}
CASES = [(name, 40) for name in SETTINGS] + [("adagrad", 2), ("own negatives", 2)]  # with more and fewer than ranks
BATCH = 31  # which neither 2 nor 3 divides


def losses(num_entities: int, settings: list[str], ranks: Ranks) -> tuple[Trainer, list[float]]:
    """Return a trainer after some steps, with the loss of each."""
    recipe = override(QUICK, [f"train.batch={BATCH}", f"train.steps={STEPS}", *settings])
    trainer = Trainer(planted_graph(num_entities), recipe, torch.device("cpu"), ranks=ranks)
    found = []
    for _ in range(STEPS):
        trainer.advance(1)
        found.append(trainer.mean_loss(1))
    trainer.flush()
    trainer.check_finite()
    return trainer, found


def check_rows(table: ShardedTable, ranks: Ranks) -> None:
    """Rows come back by id as they went, whatever their type, and a source shows the same as the table."""
    block = ranks.rows(table.num_rows)
    rows = table.by_id(table.engine.rows)
    assert len(rows) == len(block)
    table._chunk = 3  # so that there are several, and on the last ranks fewer
    assert torch.equal(rows, table.by_id(table.engine.rows))
    for kind in (torch.int32, torch.float16, torch.int64):
        numbers = torch.arange(3 * table.num_rows).view(-1, 3).to(kind)
        held = torch.full((len(table.engine.rows), 3), -1, dtype=kind)
        table.load(held, lambda start, stop, numbers=numbers: numbers[start:stop])
        assert torch.equal(table.by_id(held), numbers[block.start : block.stop])
    source = RankRows(ranks, rows, table.num_rows)
    every = torch.arange(table.num_rows)
    gathered = source.gather(torch.stack([every, every.flip(0)]))
    shown = torch.cat([torch.empty(0, table.width), *(part for _, part in source.chunks(2))])
    assert torch.equal(gathered[0][block.start : block.stop], shown)
    assert torch.equal(gathered[1], gathered[0].flip(0))
    step = torch.tensor(STEPS)
    found = table.gather(torch.tensor([1, -1, 0, 1]), step).rows.detach()
    assert torch.equal(found, torch.cat([gathered[0][1:2], torch.zeros(1, table.width), gathered[0][[0, 1]]]))


def main() -> None:
    """Write the losses of all settings; the first rank writes."""
    ranks = join_ranks()
    found = {}
    for name, num_entities in CASES:
        trainer, found[f"{name}, {num_entities} entities"] = losses(num_entities, SETTINGS[name], ranks)
        check_rows(trainer.tables.tables["entity"], ranks)
        [same] = ranks.gather(trainer.model.relation.detach()[None])
        assert (same == same[:1]).all()
    if ranks.is_first:
        Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
