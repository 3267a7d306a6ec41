"""Two and three processes that divide the entities learn what one process learns."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pairre.support.processes import ALONE, STORE_FILE
from pairre.tables.order import RowOrder
from pairre.tables.torchrec_engine import is_installed

WORKER = Path(__file__).with_name("processes_worker.py")
sys.path.insert(0, str(WORKER.parent))
from processes_worker import CASES, DOUBLE, cases, losses  # noqa: E402

needs_torchrec = pytest.mark.skipif(not is_installed(), reason="TorchRec is not installed (make .venv/.torchrec)")


def run_ranks(number: int, folder: Path, engine: str) -> dict[str, list[float]]:
    """Run the worker as so many processes with an engine and return what the first wrote."""
    out = folder / "losses.json"
    processes = []
    for rank in range(number):
        place = {"RANK": str(rank), "WORLD_SIZE": str(number), STORE_FILE: str(folder / "store")}
        environment = {**os.environ, **place, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        command = [sys.executable, str(WORKER), str(out), engine]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * number, said
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def alone():
    return {f"{name}, {num} entities": losses(num, name, ALONE)[1] for name, num in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("engine", ["exchange", pytest.param("torchrec", marks=needs_torchrec)])
def test_losses_are_those_of_one_process(alone, engine, number, tmp_path):
    found = run_ranks(number, tmp_path, engine)
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
