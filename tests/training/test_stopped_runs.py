"""Real processes that are really stopped: a resumed run ends in the same bits, and a folder in use is locked."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import pairre
from pairre.support.errors import RunError


def states(run_path: Path) -> dict[str, bytes]:
    return {name: (run_path / name).read_bytes() for name in ("model.safetensors", "metrics.json")}


SETTINGS = ["model.dim=16", "train.batch=32", "train.steps=2000", "train.validate_every=100", "train.patience=0"]
SETTINGS += ["train.checkpoint_seconds=0.1", "sampling.negatives=8", "train.schedule=step"]


def command(folder: Path, run: Path, *more: str) -> list[str]:
    flags = [part for setting in SETTINGS for part in ("--set", setting)]
    return [sys.executable, "-m", "pairre", "train", str(folder), "--out", str(run), *flags, *more]


def wait_for_step(run: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        log = run / "log.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        if lines and any(json.loads(line)["step"] >= step for line in lines[:-1]):
            return
        time.sleep(0.02)
    raise AssertionError(f"step {step} not reached")


@pytest.mark.slow
def test_stopped_runs_end_bit_identical(triples_file, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    pairre.train(triples_file, overrides=SETTINGS, out=whole, device="cpu", progress=False)
    codes = []
    for i, (sign, step) in enumerate(((signal.SIGINT, 200), (signal.SIGTERM, 500), (signal.SIGKILL, 800))):
        more = ["--resume"] if i else []
        process = subprocess.Popen(command(triples_file, broken, *more), stderr=subprocess.PIPE, text=True)
        wait_for_step(broken, step)
        os.kill(process.pid, sign)
        _, said = process.communicate(timeout=60)
        codes.append(process.returncode)
        if sign != signal.SIGKILL:
            assert "with --resume continues" in said.splitlines()[-1]
    assert codes == [130, 143, -signal.SIGKILL]
    assert not (broken / "metrics.json").exists()
    pairre.train(out=broken, resume=True, device="cpu", progress=False)
    assert states(whole) == states(broken)
    one, two = (load_file(path / "checkpoint.safetensors") for path in (whole, broken))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    steps = [json.loads(line)["step"] for line in (broken / "log.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert steps == [json.loads(line)["step"] for line in (whole / "log.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_folder_in_use_is_locked(triples_file, tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(command(triples_file, run, "--set", "train.steps=1000000"), stderr=subprocess.DEVNULL)
    try:
        wait_for_step(run, 100)
        with pytest.raises(RunError, match=f"in use by process {process.pid}"):
            pairre.train(triples_file, out=run, resume=True, progress=False)
    finally:
        process.kill()
        process.wait()
