"""The counts of a target, whose cases are divided between processes."""

import pytest

from soak import fuzz
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


@pytest.mark.parametrize("name", ["stored/train.npy", "ensemble/members/members.json", "post/score", "tools"])
def test_examples_are_whole(name, tmp_path):
    for example in targets()[name].seeds:
        assert fuzz.run_case(name, example, tmp_path) is None
