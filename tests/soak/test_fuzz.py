"""The counts of a target, whose cases are divided between processes; and that there is every proof that is run."""

from pathlib import Path

import pytest

import soak
from soak import fuzz
from soak.__main__ import commands
from soak.targets import targets


def test_a_target_is_continued_by_new_processes(monkeypatch):
    monkeypatch.setattr(fuzz, "_CASES_OF_A_PROCESS", 10)
    counted = fuzz.fuzz("rule", 20, "mutate")
    assert (counted["cases"], counted["findings"]) == (20, {})


def test_a_worker_that_counts_nothing_ends_the_target(monkeypatch):
    class Done:
        returncode, stderr = 0, b""

    started = []
    monkeypatch.setattr(fuzz.subprocess, "run", lambda *command, **_: started.append(command) or Done())
    assert fuzz.fuzz("rule", 20, "mutate")["cases"] == 0
    assert len(started) == fuzz._MAX_CRASHES


EXAMPLES = [
    *("stored/train.npy", "ensemble/members/members.json", "post/score", "tools", "effort/plan.json"),
    "in-files/model-00002-of-00002.safetensors",
]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_whole(name, tmp_path):
    for example in targets()[name].seeds:
        assert fuzz.run_case(name, example, tmp_path) is None


def test_every_proof_that_is_run_is_there():
    there = {file.stem for file in Path(soak.__file__).parent.glob("*.py")}
    assert {name for name, *_ in commands(0.001)} <= there
