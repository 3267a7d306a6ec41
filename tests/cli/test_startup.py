"""The command line starts without torch, knows its commands without importing them, and completes them in a shell."""

import gc
import os
import subprocess
import sys

import pytest

from pairre.cli.app import load_command, summaries
from pairre.models import PairRE
from pairre.runs import Run

HEAVY = ("torch", "numba", "pyarrow")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pairre", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("arguments", ["--help", "--version", "graphs"])
def test_what_needs_no_tensors_loads_no_torch(arguments):
    done = run(*arguments.split())
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert "typer" in imported
    assert not imported & set(HEAVY)


def test_a_query_loads_nothing_of_training(tmp_path, graph, quick):
    model = PairRE(graph.num_entities, graph.num_relations, quick.model.dim)
    model.initialise(0.5, 0)
    folder = Run(graph, quick, model).save(tmp_path / "run")
    done = run("predict", str(folder), "--head", "e0", "--relation", "next", "--device", "cpu")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert "pairre.inference.predict" in imported
    assert not {name for name in imported if name.startswith(("pairre.training", "pairre.analysis", "pairre.studies"))}


def test_collections_are_rare_during_a_command_only(call, monkeypatch):
    before, seen = gc.get_threshold(), []
    monkeypatch.setattr("pairre.cli.app.run", lambda _: (seen.append(gc.get_threshold()[0]), ("", 0))[1])
    assert call("graphs")[0] == 0
    assert seen[0] > before[0]
    assert gc.get_threshold() == before


@pytest.mark.parametrize(("words", "code"), [(["recipes", "fb15k-237"], 0), (["recipes", "no such"], 2)])
def test_a_command_ends_at_once_with_its_code_and_all_of_its_output(words, code):
    """What others do at the end is done, and what was printed arrives, whoever reads it late."""
    script = f"""
import atexit, sys, threading, time
from pairre.cli.app import main
atexit.register(lambda: print("the end of another"))
threading.Thread(target=lambda: (time.sleep(0.5), print("a thread"))).start()
sys.argv = ["pairre", *{words!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert "a thread\n" in done.stdout
    assert done.stdout.endswith("the end of another\n")
    assert ("[train]" in done.stdout) == (code == 0)
    assert len(done.stderr.splitlines()) == (code == 2)


def test_the_help_of_a_command_loads_no_torch():
    script = """
import sys
from pairre.cli.app import run, summaries
for name in summaries():
    assert run([name, "--help"]) == ("", 0), name
    assert "torch" not in sys.modules, name
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: ") == len(summaries())


def test_the_list_of_commands_is_what_the_modules_say():
    for name, summary in summaries().items():
        assert summary.split("\n")[0] == (load_command(name).help or "").split("\n")[0], name


def test_a_shell_completes_commands_and_options():
    script = "from pairre.cli import main; main()"
    for words, position, wanted in (("pairre tr", 1, "train"), ("pairre train --rec", 2, "--recipe")):
        environment = {"_PAIRRE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)}
        done = subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, text=True
        )
        assert wanted in done.stdout.split()
