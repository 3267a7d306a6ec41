"""The pages stay true: links lead somewhere, generated pages are up to date, figures name their machine."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pairre.cli.app import summaries

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md", *ROOT.glob("docs/**/*.md")]
COMMAND = re.compile(r"^\$ pairre (.+)$", re.M)
IN_A_SHELL = re.compile(r"^pairre (.+)$", re.M)  # of a block that is not run, such as a server's


@pytest.fixture(scope="module")
def build_docs():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        yield importlib.import_module("build_docs")
    finally:
        sys.path.pop(0)


def test_generated_pages_are_up_to_date(build_docs):
    stale = [p for p, text in build_docs.pages().items() if (build_docs.DOCS / p).read_text(encoding="utf-8") != text]
    assert stale == [], f"run `make docs`: {', '.join(stale)} differ from the code"


def test_a_model_needs_neither_notes_nor_figures(build_docs):
    from build_models_page import _section

    from pairre.models import PairRE

    section = _section(PairRE, "", {})
    assert PairRE.formula in section
    assert "Test MRR" not in section


def test_notes_belong_to_models(build_docs):
    from build_models_page import read_notes

    from pairre.models import models

    assert set(read_notes()) <= {model.name for model in models()}


def test_every_command_is_shown_in_a_guide_or_by_its_own_examples():
    guides = [ROOT / "docs" / "tutorial.md", ROOT / "docs" / "serve.md", *ROOT.glob("docs/how-to/*.md")]
    texts = [page.read_text(encoding="utf-8") for page in guides]
    shown = {line.split()[0] for text in texts for form in (COMMAND, IN_A_SHELL) for line in form.findall(text)}
    shown |= {name for name, text in summaries().items() if re.search(rf"^Examples?:\s+pairre {name} ", text, re.M)}
    assert set(summaries()) <= shown


def test_commands_in_the_readme_exist():
    shown = COMMAND.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert shown
    assert {line.split()[0] for line in shown} <= set(summaries())


def test_the_page_of_a_package_index_stands_alone():
    page = (ROOT / "PACKAGE.md").read_text(encoding="utf-8")
    assert not re.search(r"\]\((?!https?:)|<img", page), "relative links and images do not work there"
    assert {line.split()[0] for line in COMMAND.findall(page)} <= set(summaries())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["readme"] == "PACKAGE.md"
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(project["classifiers"])


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not link.startswith("http"):
            assert page.parent.joinpath(link).exists(), link


def test_old_names_of_keys_are_only_in_the_changelog_and_the_log():
    old = re.compile(r"loss\.(flattening|weighting|relations)\b|sampling\.(share|typed)\b|train\.rows\b|model\.unit\b")
    for page in PAGES:
        if page.name not in ("CHANGELOG.md", "log.md"):
            assert not old.search(page.read_text(encoding="utf-8")), page.name


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
        if path.suffix in {".py", ".md", ".toml", ".json", ".txt", ".yml", ".svg"} and path.exists():
            assert not home.search(path.read_text(encoding="utf-8")), name
