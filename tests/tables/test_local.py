"""Local tables: what dense and touched-rows optimisers do to rows, constraints, and optimisers from outside."""

import pytest
import torch

import pairre
from pairre.settings import TrainRecipe, override, registry
from pairre.tables import OPTIMIZERS, DenseTable, LocalTable, local_table


def update(table, ids, step):
    """Gather rows and update them with a gradient of ones."""
    gathered = table.gather(torch.tensor(ids), torch.tensor(step))
    table.update(gathered, torch.ones(len(ids), table.width), torch.tensor(step))


def test_a_restart_applies_what_was_deferred_and_forgets_the_state():
    rows = torch.ones(2, 2)
    table = local_table(rows, TrainRecipe(lr=1.0, steps=10, schedule="step"))
    update(table, [0], 0)
    once = rows.clone()
    table.restart(torch.tensor(5))
    assert (rows[0] < once[0]).all(), "deferred steps are not forgotten"
    assert all((value <= 0).all() for value in table.state().values())


@pytest.mark.parametrize(("update_rows", "moves"), [("all", True), ("touched", False)])
def test_rows_without_a_gradient(update_rows, moves):
    rows = torch.ones(3, 2)
    table = local_table(rows, TrainRecipe(update_rows=update_rows))
    update(table, [0, 1], 0)
    before = rows[1].clone()
    update(table, [0], 1)
    table.flush(torch.tensor(2))
    assert (not torch.equal(rows[1], before)) == moves
    assert torch.equal(rows[2], torch.ones(2))


def test_adagrad_leaves_other_rows_alone():
    rows = torch.ones(3, 2)
    update(local_table(rows, TrainRecipe(optimizer="adagrad", lr=0.1, schedule="constant")), [1], 0)
    assert torch.equal(rows[[0, 2]], torch.ones(2, 2))
    torch.testing.assert_close(rows[1], torch.full((2,), 0.9))


def test_gathered_rows_are_leaves_and_padding_is_zero():
    table = local_table(torch.ones(3, 2), TrainRecipe())
    gathered = table.gather(torch.tensor([2, -1, 2]), torch.tensor(0))
    assert gathered.rows.is_leaf
    assert gathered.rows.requires_grad
    assert gathered.rows.tolist() == [[1, 1], [0, 0], [1, 1]]


def test_a_constraint_holds_after_every_update_and_flush():
    rows = torch.full((3, 2), 0.5)
    table = local_table(rows, TrainRecipe(lr=1.0, schedule="constant"), lambda r: r.clamp_(min=0))
    update(table, [0, 1], 0)
    assert (rows >= 0).all()
    assert (rows[:2] == 0).all()
    table.flush(torch.tensor(9))
    assert (rows >= 0).all()


def test_dense_weights_are_what_the_model_computes_with():
    parameter = torch.nn.Parameter(torch.ones(2, 3))
    table = DenseTable(local_table(parameter.detach(), TrainRecipe(lr=1.0, schedule="constant")), parameter)
    gathered = table.gather(torch.arange(2), torch.tensor(0))
    assert gathered.rows is parameter
    table.update(gathered, torch.ones(2, 3), torch.tensor(0))
    assert (parameter < 1).all()


def test_local_rows_are_all_rows_in_chunks(monkeypatch):
    monkeypatch.setattr("pairre.tables.local._CHUNK", 4)
    rows = torch.arange(10.0).view(5, 2)
    chunks = list(local_table(rows, TrainRecipe()).local_rows())
    assert [first for first, _ in chunks] == [0, 2, 4]
    assert torch.equal(torch.cat([part for _, part in chunks]), rows)


def test_an_optimiser_from_outside_trains(graph, quick):
    class SgdTable(LocalTable):
        """Plain gradient descent."""

        name = "sgd-of-a-test"

        def read(self, ids, groups, step):
            return self.kernels.gather_rows(self.table, ids)

        def apply(self, groups, rows, gradient, step):
            change = gradient * self._rates[int(step), 0]
            self.table.index_add_(0, groups.ids.clamp(min=0), -change[groups.order])

    try:
        run = pairre.train(graph, override(quick, ["train.optimizer=sgd-of-a-test"]), device="cpu", progress=False)
        losses = [entry["loss"] for entry in run.history if "loss" in entry]
        assert losses[-1] < losses[0]
    finally:
        del OPTIMIZERS["sgd-of-a-test"], registry.OPTIMIZERS["sgd-of-a-test"]
