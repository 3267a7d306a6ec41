"""Rows that learn do so as in a whole table; the others keep their bits."""

import pytest
import torch

from pairre.settings.recipe import TrainRecipe
from pairre.tables import FixedTable, PartialTable, local_table


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_learning_rows_move_as_those_of_a_whole_table(optimizer, dtype):
    torch.manual_seed(0)
    recipe = TrainRecipe(optimizer=optimizer, update_rows="touched", steps=10, lr=0.1, schedule="constant")
    start = torch.randn(20, 6).to(dtype)
    whole, part = start.clone(), start.clone()
    learning = torch.tensor([3, 7, 19])
    complete = local_table(whole, recipe)
    partial = PartialTable(part, learning, recipe)
    for number in range(10):
        step = torch.tensor(number)
        ids = torch.randint(-1, 20, (12,))
        one, two = complete.gather(ids, step), partial.gather(ids, step)
        assert (
            torch.equal(one.rows[torch.isin(ids, learning) & (ids == 3)], two.rows[ids == 3]) or dtype != torch.float32
        )
        gradient = torch.randn(12, 6)
        complete.update(one, gradient, step)
        partial.update(two, gradient, step)
    partial.flush(torch.tensor(10))
    others = torch.ones(20, dtype=torch.bool)
    others[learning] = False
    assert torch.equal(part[others], start[others])
    assert not torch.equal(part[learning], start[learning])
    if dtype == torch.float32:  # half precision is rounded at random, by the position of a row
        assert torch.equal(part[learning], whole[learning])
    assert sum(len(rows) for _, rows in partial.local_rows()) == 3


def test_a_fixed_table_never_changes():
    parameter = torch.nn.Parameter(torch.randn(5, 4))
    before = parameter.detach().clone()
    table = FixedTable(parameter)
    gathered = table.gather(torch.tensor([1, -1, 4]), torch.tensor(0))
    assert torch.equal(gathered.rows, torch.stack([before[1], torch.zeros(4), before[4]]))
    table.update(gathered, torch.ones(3, 4), torch.tensor(0))
    table.flush(torch.tensor(1))
    assert torch.equal(parameter, before)
    assert FixedTable(parameter, whole=True).gather(torch.arange(5), torch.tensor(0)).rows is parameter
