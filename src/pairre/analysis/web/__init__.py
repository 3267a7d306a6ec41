"""What the pages of the product share, the report and the explorer: style, tables and charts.

The report inlines these files into its one page; a server gives them out as they are.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

SHARED_FILES = ("base.css", "charts.js")


@cache
def shared_text(name: str) -> str:
    """Return the text of one of `SHARED_FILES`."""
    return (resources.files("pairre.analysis.web") / name).read_text(encoding="utf-8")


def inlined_script(name: str) -> str:
    """Return a shared module as a script that stands in a page, so without its exports."""
    return re.sub(r"^export (?=const |function )", "", shared_text(name), flags=re.MULTILINE)
