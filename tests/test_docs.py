"""The docs stay true: every command and key is there, and what the guide shows is run."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from pairre.cli.app import app
from pairre.settings.recipe import keys

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def shown(text):
    blocks = re.findall(r"```console\n(.*?)```", text, re.S)
    lines = [line.removeprefix("$ ").split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("pairre ")]


def test_every_command_is_in_the_guide():
    for command in typer.main.get_command(app).commands:
        assert any(line.split()[1] == command for line in shown(GUIDE)), command


def test_every_recipe_key_is_in_the_guide_with_its_default():
    rows = [f"| `{path}` | `{json.dumps(d.default)}` | {d.metadata['help']} |" for path, d in keys()]
    table = "\n".join(rows)
    assert table in GUIDE, f"the table of keys should read:\n{table}"


def test_the_guide_runs(tmp_path):
    for line in shown(GUIDE):
        arguments = shlex.split(line)[1:]
        done = subprocess.run(
            [sys.executable, "-m", "pairre", *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    code = re.search(r"```python\n(.*?)```", GUIDE, re.S).group(1)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "notebook" / "model.safetensors").exists()


def test_commands_in_the_readme_exist():
    commands = typer.main.get_command(app).commands
    assert all(line.split()[1] in commands for line in shown(README))


@pytest.mark.parametrize(
    "page", sorted(p.relative_to(ROOT) for p in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]), ids=str
)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not link.startswith("http"):
            assert (ROOT / page).parent.joinpath(link).exists(), link


def test_result_files_say_machine_versions_and_date():
    for file in ROOT.glob("docs/results/*.json"):
        result = json.loads(file.read_text(encoding="utf-8"))
        assert {"cpu", "versions", "date"} <= result["machine"].keys(), file.name


def test_no_path_of_a_machine_is_committed():
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    home = re.compile(r"/(?:home|root|Users)/\w+/")
    for name in filter(None, tracked.stdout.split("\0")):
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".json", ".txt"} and path.exists():
            assert not home.search(path.read_text(encoding="utf-8")), name


def test_the_page_of_models_is_made_from_the_code():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import build_models_page
    finally:
        sys.path.pop(0)
    assert (ROOT / "docs" / "models.md").read_text(encoding="utf-8") == build_models_page.page()
