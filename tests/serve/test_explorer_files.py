"""The files of the explorer: modules fit together, nothing comes from elsewhere or as markup, wheels contain them."""

import re
import tomllib
from pathlib import Path

import pytest

import pairre
from pairre.analysis.web import SHARED_FILES, inlined_script, shared_text

PACKAGE = Path(pairre.__file__).parent
ROOT = PACKAGE.parents[1]
FOLDER, SHARED = PACKAGE / "serve" / "explorer", PACKAGE / "analysis" / "web"
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file()) + [SHARED / name for name in SHARED_FILES]
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
IMPORT = re.compile(r'^import \{ (.*?) \} from "(.*?)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) ([\w$]+)", re.MULTILINE)


def name_of(path):
    return path.name


def module(path, name):
    """The file that a module imports: what is shared stands beside the explorer's own files when it is served."""
    target = (path.parent / name).resolve()
    return SHARED / target.name if target.name in SHARED_FILES else target


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_modules_fit_together(path):
    text = path.read_text(encoding="utf-8")
    for names, source in IMPORT.findall(text):
        exported = set(EXPORT.findall(module(path, source).read_text(encoding="utf-8")))
        for name in names.split(", "):
            assert name in exported, f"{source} exports no {name}"
            assert len(re.findall(rf"(?<![\w$-])(?<![\w)]\.){re.escape(name)}(?![\w-])", text)) > 1, (
                f"{name} is imported in vain"
            )
    assert len(IMPORT.findall(text)) == text.count("\nimport ") + text.startswith("import ")
    assert len(text.splitlines()) <= 400


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_names_are_never_markup_and_nothing_comes_from_elsewhere(path):
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function", text
    )
    assert not re.search(r"https?://|@import|url\(", text)
    if path.suffix == ".html":
        assert not re.search(r"\son\w+=|\sstyle=|<style|<script>|javascript:", text)
        for name in re.findall(r'(?:src|href)="static/(.*?)"', text):
            assert (FOLDER / name).exists() or name in SHARED_FILES


def test_wheels_contain_every_file():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = patterns["tool"]["setuptools"]["package-data"]["pairre"]
    packaged = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    report = [path for path in (PACKAGE / "analysis" / "report").iterdir() if path.suffix in (".html", ".css", ".js")]
    assert set(FILES) | set(report) <= packaged


def test_the_report_carries_what_it_shares_with_the_explorer():
    script = inlined_script("charts.js")
    assert "export" not in re.findall(r"^\w+", script, re.MULTILINE)
    assert len(script) > 0.9 * len(shared_text("charts.js"))
    assert "--accent" in shared_text("base.css")
    with pytest.raises(FileNotFoundError):
        shared_text("no.css")
