"""Two and three processes that divide the entities learn what one process learns."""

import pytest
import torch
from processes_worker import CASES, DOUBLE, cases, losses, work

from conftest import in_processes
from pairre.support.processes import ALONE
from pairre.tables.order import RowOrder
from pairre.tables.torchrec_engine import is_installed

needs_torchrec = pytest.mark.skipif(not is_installed(), reason="TorchRec is not installed (make .venv/.torchrec)")


@pytest.fixture(scope="module")
def alone():
    return {f"{name}, {num} entities": losses(num, name, ALONE)[1] for name, num in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("engine", ["exchange", pytest.param("torchrec", marks=needs_torchrec)])
def test_losses_are_those_of_one_process(alone, engine, number):
    found, *others = in_processes(number, work, engine)
    assert others == [found] * (number - 1)
    assert list(found) == [f"{name}, {num} entities" for name, num in cases(engine)]
    assert len(found) >= 6
    for name, losses_here in found.items():
        # The random rounding of half precision is a function of the place of a row, which is another one here. In
        # float64 the order in which numbers are added is too little to turn the sign of any gradient.
        tolerance = 1e-3 if "half" in name else 1e-13 if DOUBLE in name else 1e-6
        assert losses_here == pytest.approx(alone[name], rel=tolerance), name


@pytest.mark.parametrize("num_rows", [1, 2, 3, 10, 97, 14541, 2**31 - 1])
def test_the_order_of_rows_is_a_bijection_that_spreads_neighbours(num_rows):
    order = RowOrder(num_rows)
    ids = torch.arange(num_rows) if num_rows < 10**6 else torch.randint(num_rows, (1000,))
    places = order.places(ids)
    assert torch.equal(order.ids(places), ids)
    assert ((places >= 0) & (places < num_rows)).all()
    if 1000 < num_rows < 10**6:  # whichever ids are frequent, 8 processes have as many of them
        assert len(torch.unique(places)) == num_rows
        for first in (0, 500, 1234):
            counts = torch.bincount(order.places(torch.arange(first, first + 800)) * 8 // num_rows, minlength=8)
            assert counts.min() >= 90
            assert counts.max() <= 110
