"""What a report shows → one page that opens by itself, offline: markup, style, script and data in one file."""

from __future__ import annotations

import html
from importlib import resources
from string import Template
from typing import Any

from pairre.analysis.web import inlined_script, shared_text
from pairre.support.text import json_text, visible


def page(values: dict[str, Any]) -> str:
    """Return the page. Data is JSON without a `<`, so that no name ends its element; names are written as text."""
    folder = resources.files("pairre.analysis.report")
    markup, style, script = (
        (folder / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    data = json_text(values, indent=None).replace("<", "\\u003c")
    return Template(markup).substitute(
        title=html.escape(visible(values["title"])),
        style=shared_text("base.css") + style,
        script=f'"use strict";\n{inlined_script("charts.js")}\n{script}',
        data=data,
    )
