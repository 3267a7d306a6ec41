"""What the documentation shows is run: commands, files and Python code of each page, in order, in an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "tutorial.md", ROOT / "docs" / "extending.md", *sorted(ROOT.glob("docs/how-to/*.md"))]
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)
# Commands of a page share one process, so that it imports and compiles once.
RUN_COMMANDS = """
import shlex, sys
from pairre.cli.app import main
for line in sys.stdin.read().splitlines():
    try:
        main(shlex.split(line)[1:])
    except SystemExit as stop:
        if stop.code:
            sys.exit(f"exit code {stop.code}: {line}")
"""


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def shortened(command):
    """Return the command with few training steps, if it does not choose their number itself."""
    trains = re.search(r"^pairre (--plugin \S+ )*train ", command)
    return f"{command} --set train.steps=60" if trains and "train.steps" not in command else command


def run(code, folder, text=""):
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_runs(page, tmp_path):
    found = blocks(page)
    for _, name, text in found:
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
    lines = [line for language, _, text in found if language == "console" for line in text.splitlines()]
    assert all(line.startswith("$ pairre ") for line in lines)
    run(RUN_COMMANDS, tmp_path, "\n".join(shortened(line.removeprefix("$ ")) for line in lines))
    for language, name, text in found:
        if language == "python" and not name:
            run(text, tmp_path)


def test_the_example_of_a_command_works(tmp_path):
    [text] = [text for _, name, text in blocks(ROOT / "docs" / "extending.md") if name == "degrees.py"]
    (tmp_path / "degrees.py").write_text(text, encoding="utf-8")
    code = "import sys, typer, degrees; sys.argv = ['degrees', 'atlas']; typer.run(degrees.command)"
    run(code, tmp_path)
