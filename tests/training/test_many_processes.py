"""Real processes that train one run together: what they end with, how they stop, and what survives them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import pairre

# isort: split
import pytest
import torch
from safetensors.torch import load_file

from conftest import in_processes, planted_graph
from pairre.cli import main
from pairre.settings import override
from pairre.support.errors import RecipeError, RunError
from pairre.support.processes import Processes
from pairre.tables import torchrec_engine
from pairre.training.step import Trainer

FAULTS = Path(__file__).with_name("faults.py")
SETTINGS = {
    **{"model.dim": 16, "train.batch": 31, "train.steps": 60, "train.validate_every": 20, "train.patience": 0},
    **{"train.checkpoint_seconds": 0.1, "sampling.negatives": 8, "train.schedule": "constant", "train.lr": 0.01},
}

TORCHREC = ["tables.engine=torchrec", "train.optimizer=adagrad"]


def arguments(graph: Path | None, run: Path, *more: str, **settings: object) -> list[str]:
    """The command that trains, or goes on with a run."""
    chosen = (settings if graph is None else {**SETTINGS, **settings}).items()
    flags = [part for key, value in chosen for part in ("--set", f"{key}={value}")]
    return ["--plugin", str(FAULTS), "train", *([str(graph)] if graph else []), "--out", str(run), *flags, *more]


def start(number: int, *words: str, fault: str = "") -> subprocess.Popen[str]:
    """Start a command that starts so many processes itself."""
    environment = {**os.environ, "FAULT": fault, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pairre", *words, "--nproc", str(number)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def train(number: int, folder: Path, *words: str, fault: str = "") -> tuple[int, str]:
    """Train to the end in processes that are forked: the exit code of the last, and what all said on standard error."""
    said = folder / "said"
    codes = in_processes(number, train_here, words, said, fault)
    return codes[-1], said.read_text()


def train_here(words: Sequence[str], said: Path, fault: str) -> int:
    """Run a command in this process, which is one of several."""
    os.environ["FAULT"] = fault
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.stderr.fileno())
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return int(stop.value.code)


def results(run: Path) -> dict[str, list[float]]:
    """Losses and metrics of a run that has ended."""
    entries = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    valid = [entry["valid"]["mrr"] for entry in entries if "valid" in entry]
    metrics = json.loads((run / "metrics.json").read_text())
    return {"loss": [e["loss"] for e in entries if "loss" in e], "valid": valid, "test": [metrics["both"]["mrr"]]}


def check(run: Path, expected: dict[str, list[float]]) -> None:
    found = results(run)
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-5), name
    leftovers = [path.name for path in run.rglob("*") if ".part" in path.name or path.name == "model.next"]
    assert leftovers == []
    assert [report for report in pairre.check_run(run) if report.fault] == []


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """The planted graph as files, and what one process learns from it."""
    folder = tmp_path_factory.mktemp("ring")
    graph = planted_graph()
    for split in ("train", "valid", "test"):
        lines = ("\t".join(names) + "\n" for names in graph.names(graph.split(split)))
        (folder / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    pairre.train(folder, overrides=SETTINGS, out=folder / "alone", device="cpu", progress=False)
    return folder, results(folder / "alone")


@pytest.mark.slow
def test_a_rank_killed_in_a_checkpoint_starts_again_and_ends_as_one_process_does(ring, tmp_path):
    graph, expected = ring
    run = tmp_path / "run"
    process = start(2, *arguments(graph, run), fault="killed in a checkpoint:1:0")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert re.findall(r"process (\d) of 2 was killed", said) == ["2"]
    assert re.findall(r"resumed after step (\d+)", said)
    check(run, expected)
    names = {path.name for path in run.glob("*") if path.name.startswith(("model", "checkpoint"))}
    assert names == {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "checkpoint-000060"}
    rows = [len(load_file(run / f"model-0000{rank}-of-00002.safetensors")["entity"]) for rank in (1, 2)]
    assert rows == [20, 20]
    model = pairre.load_run(run).model
    assert model.num_entities == 40


@pytest.mark.slow
def test_a_checkpoint_goes_on_in_any_number_of_processes(ring, tmp_path):
    graph, expected = ring
    run = tmp_path / "run"
    code, said = train(2, tmp_path, *arguments(graph, run, **{"train.steps": 20}))
    assert code == 0, said
    pairre.train(out=run, resume=True, overrides={"train.steps": 40}, device="cpu", progress=False)
    assert [path.name for path in run.glob("model*")] == ["model.safetensors"]
    code, said = train(3, tmp_path, *arguments(None, run, "--resume", **{"train.steps": 60}))
    assert code == 0, said
    assert "resumed after step 40" in said
    found = results(run)
    assert found["valid"] == pytest.approx(expected["valid"], rel=1e-5)
    assert found["test"] == pytest.approx(expected["test"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(not torchrec_engine.is_installed(), reason="TorchRec is not installed (make .venv/.torchrec)")
def test_a_checkpoint_goes_on_with_another_engine(ring, tmp_path):
    graph, _ = ring
    settings = {**SETTINGS, "train.optimizer": "adagrad", "train.lr": 0.1}
    alone, run = tmp_path / "alone", tmp_path / "run"
    pairre.train(graph, overrides=settings, out=alone, device="cpu", progress=False)
    pairre.train(graph, overrides={**settings, "train.steps": 20}, out=run, device="cpu", progress=False)
    code, said = train(2, tmp_path, *arguments(None, run, "--resume", **{"train.steps": 40}))
    assert code == 0, said
    assert "cpu, 2 processes (torchrec)" in said
    assert "Warning" not in said
    more = {"train.steps": 60, "tables.engine": "exchange"}
    pairre.train(out=run, resume=True, overrides=more, device="cpu", progress=False)
    check(run, {name: values for name, values in results(alone).items() if name != "loss"})


def test_an_engine_that_does_not_load_is_named_with_what_to_install(graph, quick, monkeypatch):
    monkeypatch.setattr(torchrec_engine, "import_module", lambda name: import_module("there_is_no_such_module"))
    monkeypatch.setattr(Processes, "any", lambda processes, flag: flag)
    with pytest.raises(RecipeError, match=r"tables.engine: torchrec does not load \(No module .*--no-deps torchrec"):
        Trainer(graph, override(quick, TORCHREC), torch.device("cpu"), processes=Processes(1, 2))
    monkeypatch.setattr(torchrec_engine, "is_installed", lambda: False)
    trainer = Trainer(graph, override(quick, TORCHREC[1:]), torch.device("cpu"), processes=Processes(1, 2))
    assert trainer.engine == "exchange"


@pytest.mark.slow
def test_a_full_disk_on_one_rank_stops_all_with_one_line(ring, tmp_path):
    run = tmp_path / "run"
    code, said = train(2, tmp_path, *arguments(ring[0], run), fault="full disk:1:0")
    assert code == 2
    [line] = [line for line in said.splitlines() if line.startswith("pairre:")]
    assert "the disk is full" in line
    assert "Traceback" not in said
    assert [report for report in pairre.check_run(run) if report.fault] == []
    assert pairre.load_run(run).unfinished


@pytest.mark.slow
def test_a_signal_stops_all_ranks_at_one_step(ring, tmp_path):
    graph, _ = ring
    run = tmp_path / "run"
    process = start(2, *arguments(graph, run, **{"train.steps": 100_000, "train.validate_every": 50_000}))
    while not any(run.glob("checkpoint-*")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, said
    [line] = [line for line in said.splitlines() if line.startswith("pairre:")]
    step = int(re.search(r"stopped at step ([\d,]+);", line)[1].replace(",", ""))
    assert [path.name for path in run.glob("checkpoint-*")] == [f"checkpoint-{step:06}"]


@pytest.mark.slow
def test_an_error_of_all_ranks_is_told_once(ring, tmp_path):
    settings = {"train.lr": 1e30, "train.optimizer": "adagrad", "tables.engine": "exchange"}
    code, said = train(2, tmp_path, *arguments(ring[0], tmp_path / "run", **settings))
    assert code == 2
    [line] = [line for line in said.splitlines() if line.startswith("pairre:")]
    assert "try a smaller train.lr" in line


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["model.name=rgcn"], "model.name: rgcn reads the rows of neighbours"),
        (["model.name=gc-ote"], "model.name: gc-ote reads the rows of neighbours"),
        (["model.name=conve"], "model.name: conve normalises"),
        (['distill.teacher="runs/both"', "sampling.negatives=0"], "distill.teacher: several processes"),
        (["tables.engine=torchrec"], "tables.engine: torchrec updates rows by adagrad only, not by adam"),
        ([*TORCHREC, "model.storage=float16"], "tables.engine: torchrec rounds half precision to the nearest"),
        ([*TORCHREC, "model.unit_norm=true"], "tables.engine: torchrec does not bring rows back"),
        ([*TORCHREC, "model.dim=15"], "tables.engine: torchrec needs a multiple of 4 numbers in a row, not 15"),
        (["train.batch=1"], "train.batch: a batch has 1 positives, and each of 2 processes needs one"),
        (["train.batch=8", "sampling.chunk_size=7", "sampling.negatives=4"], None),
        (["train.batch=8", "sampling.chunk_size=4"], None),
    ],
)
def test_what_several_processes_cannot_do_is_refused_by_name(graph, quick, monkeypatch, settings, expected):
    monkeypatch.setattr(Processes, "any", lambda processes, flag: flag)
    recipe, processes = override(quick, settings), Processes(1, 2)
    with nullcontext() if expected is None else pytest.raises(RecipeError, match=expected):
        Trainer(graph, recipe, torch.device("cpu"), processes=processes)


def test_a_run_of_several_processes_needs_a_folder(graph, quick, monkeypatch):
    monkeypatch.setattr(sys.modules["pairre.training.train"], "join_processes", lambda: Processes(0, 2))
    with pytest.raises(RunError, match="several processes need a run folder"):
        pairre.train(graph, quick, progress=False)
    with pytest.raises(RecipeError, match="init_from"):
        pairre.train(graph, quick, out="run", init_from=pairre.train, progress=False)
    with pytest.raises(RecipeError, match="seeds: several processes"):
        pairre.train_seeds(graph, quick, seeds=[0, 1], progress=False)
