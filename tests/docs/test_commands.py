"""What the documentation shows is run: commands, files and Python code of each page, in order, in an empty folder."""

import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from pairre.graph.benchmarks import find as find_benchmark
from pairre.studies.reproduce import find

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "tutorial.md", ROOT / "docs" / "extending.md", *sorted(ROOT.glob("docs/how-to/*.md"))]
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def shortened(command):
    """Return the command with a tenth of its training steps, or with few, and with short vectors."""
    if "--effort" in command:
        return re.sub(r"(--effort \w+)( --time \w+)?", r"\1 --time 10s", command)
    if not re.search(r"^pairre (--plugin \S+ )*(train|tune) ", command):
        return command
    if "train.steps" not in command:
        command += " --set train.steps=20"
    return re.sub(r"train\.steps=(\d+)0", r"train.steps=\1", command) + " --set model.dim=16"


def serves(command):
    return bool(re.search(r"^pairre (--plugin \S+ )*serve ", command))


def check_server(command, folder):
    """Start a server on a free port, open its page, and tell it to stop."""
    arguments = [*shlex.split(command)[1:], "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "pairre", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        said = []
        for line in server.stdout:
            said.append(line)
            if address := re.search(r"http://\S+", line):
                with urllib.request.urlopen(address.group()) as page:
                    assert b"<title>pairre</title>" in page.read()
                server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, "".join(said)
    assert any("http://" in line for line in said), "".join(said)


def run(code, folder):
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


# What a plug-in registers stays in a process, so it has one of its own.
WITH_PLUGINS = """
import shlex
from pairre.cli.app import run
for line in {lines!r}:
    said, code = run(shlex.split(line)[1:])
    assert not code, (line, said)
"""


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_runs(page, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks(page)
    for _, name, text in found:
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
    lines = [line for language, _, text in found if language == "console" for line in text.splitlines()]
    codes = [text for language, name, text in found if language == "python" and not name]
    assert all(line.startswith("$ pairre ") for line in lines)
    commands = [shortened(line.removeprefix("$ ")) for line in lines]
    if any("--plugin" in command for command in commands):
        run("\n".join([WITH_PLUGINS.format(lines=commands), *codes]), tmp_path)
        return
    for command in commands:
        if serves(command):
            pytest.importorskip("uvicorn")
            check_server(command, tmp_path)
        else:
            check(call, command)
    for code in codes:
        if "import asyncio" in code:  # it talks to a process, for which it needs the streams that pytest replaces
            run(code, tmp_path)
        else:
            exec(compile(code, page.name, "exec"), {"__name__": "__main__"})


def check(call, command):
    """Run a command in this process."""
    code, _, said = call(*shlex.split(command)[1:])
    assert code == 0, f"{command}: {said}"


def readme_commands():
    """Return the commands of README.md without the remarks beside them."""
    found = [text for language, _, text in blocks(ROOT / "README.md") if language == "console"]
    lines = [line for text in found for line in text.splitlines()]
    return [re.sub(r"\s+# .*", "", line).removeprefix("$ ") for line in lines]


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _, name, text in blocks(ROOT / "README.md"):
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
    commands = [
        command
        for command in readme_commands()
        if not command.startswith(("make ", "pairre reproduce ", "pairre serve "))
    ]
    assert len(commands) >= 10
    for command in commands:
        check(call, shortened(command))


def test_what_the_readme_reproduces_can_be_downloaded_and_its_chores_exist():
    chores = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for word, name in (command.split()[-2:] for command in readme_commands()):
        if word == "reproduce":
            graphs = [find_benchmark(trial.graph) for trial in find(name).trials]
            assert graphs
            assert all(graph.sources for graph in graphs), "it could not be downloaded"
        elif word == "make":
            assert name in chores


def test_the_example_of_a_command_works(tmp_path):
    [text] = [text for _, name, text in blocks(ROOT / "docs" / "extending.md") if name == "degrees.py"]
    (tmp_path / "degrees.py").write_text(text, encoding="utf-8")
    code = "import sys, typer, degrees; sys.argv = ['degrees', 'atlas']; typer.run(degrees.command)"
    run(code, tmp_path)
