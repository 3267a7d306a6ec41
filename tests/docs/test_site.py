"""The documentation site builds without a warning, and nothing in it is loaded from the network."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("furo", reason="the site needs the extra docs: pip install 'pairre[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr  # -W: a broken link or anchor is an error
    return folder


class Loaded(HTMLParser):
    """Collects what a browser fetches to show a page."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.addresses.append(attributes.get("src") or "")
        elif tag == "link" and attributes.get("rel") in ("stylesheet", "preconnect", "preload", "icon"):
            self.addresses.append(attributes.get("href") or "")


@pytest.mark.slow
def test_every_page_is_there_and_can_be_searched(site):
    assert (site / "index.html").exists()
    assert (site / "reference" / "commands.html").exists()
    assert "reference/recipe-keys" in (site / "searchindex.js").read_text(encoding="utf-8")


@pytest.mark.slow
def test_nothing_is_loaded_from_the_network(site):
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert [a for a in loaded.addresses if re.match(r"(https?:)?//", a)] == [], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import ['\"]?https?:", sheet.read_text(encoding="utf-8")), sheet.name
    for figure in site.rglob("figures/*.svg"):
        assert not re.search(r"url\(['\"]?https?:|href=\"https?:", figure.read_text(encoding="utf-8")), figure.name
