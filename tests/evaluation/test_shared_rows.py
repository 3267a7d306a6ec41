"""Processes that share the rows of a run count, rank, search and answer as one process does, to the bit."""

import shutil
from pathlib import Path

import pytest
import torch
from shared_rows_worker import work

from conftest import QUICK, cut_run, in_processes, planted_graph
from pairre.runs import Run, build_model
from pairre.settings import override

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


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, (settings, num_entities) in RUNS.items():
        make_run(folder / name, settings, num_entities)
    old = Path(__file__).parents[1] / "runs" / "format-1"  # whose files have no checksums
    shutil.copytree(old, folder / "format-1")
    return folder


@pytest.fixture(scope="module")
def alone(runs):
    return in_processes(1, work, runs, runs.with_name("alone"))[0]


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
    found = in_processes(number, work, runs, tmp_path / "found")[0]
    assert len(found) == len(list(runs.iterdir()))
    if number == 3:
        assert found.pop("damaged") == ""  # another process compares that file, and says what is wrong
    if number == 2:
        assert "rgcn, which reads neighbours, needs all rows in one process" in found.pop("rgcn")
    for name, one in found.items():
        for key, expected in alone[name].items():
            assert one[key] == expected, f"{name}: {key}"
