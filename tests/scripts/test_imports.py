"""Benchmarks and scripts keep pace with the package: each is imported, and their settings of every model are valid."""

import importlib.util
import sys
from pathlib import Path

import pytest

from pairre.models import models
from pairre.settings import from_values

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "benchmarks", ROOT / "scripts")


@pytest.fixture(autouse=True)
def scripts_can_be_imported(monkeypatch):
    for folder in FOLDERS:
        monkeypatch.syspath_prepend(str(folder))


APPLICATIONS = {"plain_service"}  # loaded by uvicorn, for a run that the environment names


@pytest.mark.parametrize(
    "path", sorted(path for folder in FOLDERS for path in folder.glob("*.py")), ids=lambda path: path.stem
)
def test_every_benchmark_and_script_can_be_imported(path, monkeypatch):
    if path.stem in APPLICATIONS:
        return
    spec = importlib.util.spec_from_file_location(f"imported_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert module.__doc__


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_settings_that_models_are_compared_with_are_recipes(model):
    found = importlib.import_module("models").candidates(model)
    assert found
    for settings in found:
        from_values(settings)
