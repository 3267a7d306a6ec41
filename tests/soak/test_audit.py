"""What pip-audit prints is not believed where it looked nothing up."""

import json

import pytest

from soak.audit import NOT_LOOKED_UP, NOTHING_KNOWN, VULNERABLE, judge, pinned

LOOKED_UP = {"name": "torch", "version": "2.0", "vulns": []}
SKIPPED = {"name": "numpy", "skip_reason": "Dependency not found on PyPI and could not be audited: numpy (2.0)"}
HURT = {"name": "Num_Py", "version": "2.0", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([LOOKED_UP, {**HURT, "vulns": []}], NOTHING_KNOWN, "0 known vulnerabilities in the 2 of 2"),
        ([LOOKED_UP, SKIPPED], NOT_LOOKED_UP, "Not looked up: numpy."),
        ([LOOKED_UP], NOT_LOOKED_UP, "Not looked up: num-py."),
        ([SKIPPED], NOT_LOOKED_UP, "0 known vulnerabilities in the 0 of 2"),
        ([LOOKED_UP, HURT], VULNERABLE, "CVE-1, fixed in 2.1"),
        ([SKIPPED, HURT], VULNERABLE, "CVE-1"),
    ],
)
def test_only_what_was_looked_up_counts(packages, code, said):
    name = "numpy" if SKIPPED in packages else "num-py"
    found, lines = judge(json.dumps({"dependencies": packages}), "No known vulnerabilities found", {"torch", name})
    assert (found, said in "\n".join(lines)) == (code, True), lines


@pytest.mark.parametrize("output", ["", "[]", "{}", "<html>"])
def test_a_failure_is_not_good_news(output):
    code, lines = judge(output, "…\nConnectionError: no route to host\n", {"torch"})
    assert code == NOT_LOOKED_UP
    assert "no route to host" in lines[0]


def test_all_pins_are_expected():
    assert {"torch", "numpy", "pyarrow"} <= pinned()
