"""Adding a thing takes one file: the examples of docs/extending.md, put into a copy of the package as it says, pass."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "README.md", "PACKAGE.md", "CHANGELOG.md")
FOLDERS = ("src", "tests", "scripts", "benchmarks", "soak", "docs")
# Example → the file of the package that it becomes, or that it is added to.
BECOMES = {"my_model.py": "models/scaled.py", "my_format.py": "graph/formats/arrows.py", "degrees.py": "cli/degrees.py"}
BECOMES["my_source.py"] = "graph/sources/diary.py"
ADDED_TO = {
    "my_loss.py": "training/losses.py",
    "my_metric.py": "evaluation/metrics.py",
    "my_optimizer.py": "tables/optimizers.py",
}
NEW = ("scaled-transe", "ScaledTransE", "help_of_a_command")  # where what is new has a test of its own, run no other
COMPILING = (
    "a_new_metric",
    "equal_weights",
)  # tests that compile kernels of the copy anew, and see nothing of what is new
# The tests that find what is new, or that could take it amiss.
TESTS = [
    *("tests/graph/formats/test_registry.py", "tests/graph/formats/test_tables.py", "tests/graph/sources"),
    *("tests/training/test_losses.py", "tests/evaluation/test_metrics.py", "tests/settings/test_recipe.py"),
    *("tests/models/test_models.py", "tests/tables/test_local.py", "tests/test_architecture.py"),
    *("tests/docs/test_pages.py", "tests/cli/test_startup.py", "tests/models/test_expressiveness.py"),
]


def project_with_examples(copy):
    """Copy the project, and put every example into it, each in one file."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in FILES:
        shutil.copy(ROOT / name, copy / name)
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    examples = dict(re.findall(r'^```python title="([^"]+)"\n(.*?)^```$', page, re.M | re.S))
    assert examples.keys() == BECOMES.keys() | ADDED_TO.keys()
    for name, target in BECOMES.items():
        file = copy / "src" / "pairre" / target
        assert not file.exists()
        file.write_text(examples[name], encoding="utf-8")
    for name, target in ADDED_TO.items():
        file, added = copy / "src" / "pairre" / target, ast.parse(examples[name]).body[-1]
        first = min(node.lineno for node in (added, *added.decorator_list))
        body = "".join(examples[name].splitlines(keepends=True)[first - 1 :])  # without docstring and imports
        file.write_text(f"{file.read_text(encoding='utf-8')}\n\n{body}", encoding="utf-8")


def run(copy, *arguments):
    """Run Python in the copy, with the package of the copy."""
    path = os.pathsep.join([str(copy / "src"), str(copy)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.mark.slow
def test_examples_pass_as_parts_of_the_package(tmp_path):
    project_with_examples(tmp_path)
    run(tmp_path, "scripts/build_docs.py")  # generated pages aside, nothing else changes
    run(tmp_path, "-m", "ruff", "check", ".")
    run(tmp_path, "-m", "ruff", "format", "--check", ".")
    new = [f"src/pairre/{target}" for target in (*BECOMES.values(), *ADDED_TO.values())]
    if (ROOT / ".mypy_cache").is_dir():  # so that mypy need not read torch and numpy again
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / ".mypy_cache")
    run(tmp_path, "-m", "mypy", *new)
    chosen = (
        f"not (test_models or test_expressiveness or test_startup or {' or '.join(COMPILING)}) or {' or '.join(NEW)}"
    )
    said = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, "-k", chosen)
    assert re.search(r"^\d{3} passed", said, re.M), said
