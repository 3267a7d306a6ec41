"""What a report shows → one page that opens by itself, offline: markup, style, script and data in one file."""

from __future__ import annotations

import html
import json
from importlib import resources
from string import Template
from typing import Any


def page(values: dict[str, Any]) -> str:
    """The page. Data is JSON without a `<`, so that no name can end its element; the script writes names as text."""
    folder = resources.files("pairre.analysis.report")
    markup, style, *scripts = (
        (folder / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "charts.js", "page.js")
    )
    data = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return Template(markup).substitute(
        title=html.escape(values["title"]), style=style, script="\n".join(scripts), data=data
    )
