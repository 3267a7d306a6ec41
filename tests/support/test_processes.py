"""Where a process stands among processes is read from the environment of torchrun, Slurm, or nobody."""

import pytest
import torch

from pairre.support.processes import ALONE, STORE_FILE, Place, Processes, first_of_nodes, place

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, Place(3, 4, 1)),
        ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}, Place(5, 8, 1)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),  # a batch script, which srun did not start
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, Place(1, 2)),
        ({"RANK": "1", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "3"}, Place(1, 6, local_size=3)),
        ({"RANK": "1", "WORLD_SIZE": "6", STORE_FILE: "store"}, Place(1, 6, local_size=6)),
        (
            {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "28", "SLURM_STEP_TASKS_PER_NODE": "4(x3),16"},
            Place(0, 28, local_size=16),
        ),
    ],
)
def test_the_place_is_what_the_environment_says(monkeypatch, environment, expected):
    for name in (*NAMES, "LOCAL_WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE", STORE_FILE):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert place() == expected


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("node[07-12,20],login1", "node07"), ("gpu3", "gpu3"), ("a1,a2", "a1"), ("r[2,5]n1", "r2n1"), ("", "localhost")],
)
def test_the_first_node_of_a_list(nodes, first):
    assert first_of_nodes(nodes) == first


@pytest.mark.parametrize("total", [0, 1, 2, 5, 7, 100])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_rows_and_shares_cover_everything_once(total, size):
    processes = [Processes(rank, size) for rank in range(size)]
    assert [row for one in processes for row in one.block_of_rows(total)] == list(range(total))
    assert [item for one in processes for item in range(total)[one.even_slice(total)]] == list(range(total))
    if total >= size:
        assert all(range(total)[one.even_slice(total)] for one in processes)


def test_one_process_exchanges_nothing():
    x = torch.arange(3)
    assert ALONE.sum(x) is x
    assert ALONE.gather(x) == [x]
    assert ALONE.greatest(1, 2) == (1, 2)
    with pytest.raises(OSError, match="mine"), ALONE.together():
        raise OSError("mine")
