"""What a reader must follow for a step, an evaluation and a query grows no more than docs/architecture.md says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (?P<journey>[a-z ]+) \|[^|]*\| (\d+) files, (\d+) functions \| (?:(\d+) and (\d+))? ?\|$", re.M)


@pytest.mark.slow
def test_counts_are_within_what_is_documented():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    allowed = {}
    for journey, *numbers in ROW.findall(page):
        now, limit = ([int(number or 0) for number in pair] for pair in (numbers[:2], numbers[2:]))
        allowed[journey] = [max(pair) for pair in zip(now, limit, strict=True)]
    command = [sys.executable, "scripts/reading_cost.py", "--json"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    assert allowed.keys() == found.keys()
    for journey, counts in found.items():
        assert counts["files"] <= allowed[journey][0], journey
        assert counts["functions"] <= allowed[journey][1], journey
