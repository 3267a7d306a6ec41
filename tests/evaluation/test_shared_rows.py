"""Processes that share the rows of a run count, rank, search and answer as one process does, to the bit."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from conftest import QUICK, cut_run, planted_graph
from pairre.runs import Run, build_model
from pairre.settings import override
from pairre.support.processes import STORE_FILE

WORKER = Path(__file__).with_name("shared_rows_worker.py")
RUNS = {
    "pairre": ([], 40),
    "complex": (["model.name=complex", "model.reciprocal=true"], 40),
    "transe": (["model.name=transe", "model.norm=l2"], 40),
    "rotate": (["model.name=rotate", "model.storage=bfloat16"], 40),
    "transr": (["model.name=transr"], 40),
    "few": ([], 2),  # fewer entities than processes
    "rgcn": (["model.name=rgcn"], 40),  # refused
}


def make_run(path: Path, settings: list[str], num_entities: int) -> None:
    """Write a run whose entities have few different rows, so that candidates tie all over the table."""
    recipe, graph = override(QUICK, settings), planted_graph(max(num_entities, 10))
    if num_entities < 10:
        graph = few_entities(graph)
    model = build_model(graph, recipe, torch.device("cpu")).requires_grad_(False)
    model.entity.copy_(model.entity[torch.arange(len(model.entity)) % 5 % num_entities])
    model.entity[1] = model.entity[0] * 0.9
    Run(graph, recipe, model).save(path)


def few_entities(graph):
    from pairre.graph import Graph, Vocabulary

    triples = torch.tensor([[0, 0, 1], [1, 1, 0], [0, 2, 1]], dtype=torch.int32)
    return Graph("few", Vocabulary(["e0", "e1"], "entity"), graph.relations, triples, triples[:0], triples[2:])


def flip_a_byte(file: Path) -> None:
    """Damage the last number of a file."""
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)


def find(runs: Path, out: Path, number: int) -> dict:
    """Return what so many processes find in the runs of a folder."""
    processes = []
    for rank in range(number):
        place = {"RANK": str(rank), "WORLD_SIZE": str(number), STORE_FILE: str(out.with_suffix(".store"))}
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            **(place if number > 1 else {}),
        }
        command = [sys.executable, str(WORKER), str(runs), str(out)]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * number, said
    return json.loads((out / "found.json").read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, (settings, num_entities) in RUNS.items():
        make_run(folder / name, settings, num_entities)
    shutil.copytree(WORKER.parents[1] / "runs" / "format-1", folder / "format-1")  # whose files have no checksums
    return folder


@pytest.fixture(scope="module")
def alone(runs):
    return find(runs, runs.with_name("alone"), 1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 3])
def test_processes_find_what_one_does(runs, alone, number, tmp_path):
    if number == 3:  # from files that are not divided as the processes are, some of them empty
        for name in ("pairre", "transr", "few"):
            shutil.copytree(runs / name, tmp_path / "runs" / name)
            cut_run(tmp_path / "runs" / name, *((0, 17, 17) if name != "few" else (0, 0, 1, 2)))
        runs = tmp_path / "runs"
        shutil.copytree(runs / "pairre", runs / "damaged")
        flip_a_byte(runs / "damaged" / "model-00003-of-00003.safetensors")
    found = find(runs, tmp_path / "found", number)
    assert len(found) == len(list(runs.iterdir()))
    if number == 3:
        assert found.pop("damaged") == ""  # another process compares that file, and says what is wrong
    if number == 2:
        assert "rgcn, which reads neighbours, needs all rows in one process" in found.pop("rgcn")
    for name, one in found.items():
        for key, expected in alone[name].items():
            assert one[key] == expected, f"{name}: {key}"
