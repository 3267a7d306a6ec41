import json

import pytest


def test_a_plan_as_tables_and_as_json(call):
    code, out, _ = call("plan", "91M/1387/600M", "--set", "train.optimizer=adagrad", "--nproc", "2")
    assert code == 0
    for text in ("table of entity rows", "where it fits", "how long", "gpu-2026-11-15.json", "not measured"):
        assert text in out
    code, out, _ = call("plan", "atlas", "--json")
    assert json.loads(out)["entities"] == 1518
    assert call("plan", "1k/10/9k", "--set", "model.name=transe")[0] == 0


@pytest.mark.parametrize("arguments", [("nowhere/2/3",), ("1k/10/9k", "--set", "model.dim=0")])
def test_faults_are_one_line(call, arguments):
    code, _, errors = call("plan", *arguments)
    assert code == 2
    assert "Traceback" not in errors
