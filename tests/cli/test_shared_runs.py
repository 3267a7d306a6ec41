"""Commands that several processes run together print and write once; others are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from conftest import QUICK, cut_run, planted_graph
from pairre.runs import Run, build_model

WHY = ("why", "--head", "e3", "--relation", "beside", "--tail", "e4")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with three files of weights."""
    graph = planted_graph()
    path = tmp_path_factory.mktemp("shared") / "run"
    Run(graph, QUICK, build_model(graph, QUICK, torch.device("cpu"))).save(path)
    cut_run(path, 0, 11, 30)
    return path


@pytest.mark.slow
def test_torchrun_prints_and_writes_once(run, call, tmp_path):
    started = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "pairre"]
    links = tmp_path / "together.jsonl"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*started, "discover", run, "--out", links, "-k", "20"],
        capture_output=True, text=True, timeout=300, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    code, printed, _ = call("discover", run, "--out", tmp_path / "alone.jsonl", "-k", "20")
    assert code == 0
    assert done.stdout == printed.replace("alone.jsonl", "together.jsonl")
    assert links.read_text() == (tmp_path / "alone.jsonl").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.jsonl", "together.jsonl"]


@pytest.mark.parametrize("command", [WHY, ("calibrate",)])
def test_commands_of_one_process_are_refused(run, call, monkeypatch, command):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    name, *rest = command
    code, printed, said = call(name, run, *rest)
    assert (code, printed) == (2, "")
    assert "this command works in one process, and there are 2: leave out torchrun" in said


def test_commands_open_a_run_in_files(run, call, tmp_path):
    code, printed, _ = call("evaluate", run, "--json", tmp_path / "metrics.json")
    assert code == 0
    assert json.loads((tmp_path / "metrics.json").read_text())["num_triples"] == 16
    assert "MRR" in printed
    for command in (("export", "--out", tmp_path / "vectors.npy"), ("similar", "e3"), WHY):
        name, *rest = command
        code, _, said = call(name, run, *rest)
        assert code == 0, said
