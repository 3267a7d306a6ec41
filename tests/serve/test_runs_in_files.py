"""A run whose weights are in several files is served with the answers of the same run in one."""

from __future__ import annotations

import shutil
import tempfile

import pytest
import torch

from conftest import QUICK, cut_run, planted_graph
from pairre.runs import Run, build_model
from pairre.serve.answers import predict_together
from pairre.serve.rows import map_rows, write_rows
from pairre.serve.state import RunState
from pairre.settings import override

QUERIES = [{"head": "e3", "relation": "next"}, {"relation": "beside", "tail": "e30", "any": True, "k": 12}]


@pytest.mark.parametrize("settings", [[], ["model.name=complex"]])
def test_answers_are_the_same(settings, tmp_path):
    graph, recipe = planted_graph(), override(QUICK, settings)
    whole = Run(graph, recipe, build_model(graph, recipe, torch.device("cpu"))).save(tmp_path / "whole")
    shutil.copytree(whole, tmp_path / "parts")
    cut_run(tmp_path / "parts", 0, 13, 30)
    answers = []
    for path in (whole, tmp_path / "parts"):
        state = RunState.open("run", path, "cpu", mapped=True)
        with tempfile.TemporaryFile() as file:
            layout = write_rows(state.run, file)
            assert layout is not None
            state.prepared = map_rows(state.run, file, layout)
            answers.append(predict_together(state, QUERIES))
    assert answers[0] == answers[1]
    assert "entity" not in layout.values()  # there is no one table that the answers could read
