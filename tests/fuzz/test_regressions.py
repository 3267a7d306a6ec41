"""Cases that once made a reader fail, and a few hundred new ones for every reader."""

from __future__ import annotations

import logging
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soak.fuzz import REGRESSIONS, mutated, run_case
from soak.targets import targets

CASES = sorted(file for file in REGRESSIONS.rglob("*") if file.is_file() and file.name != ".gitkeep")
NUM_MUTATED = 60


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("file", CASES, ids=lambda file: str(file.relative_to(REGRESSIONS)))
def test_a_case_that_once_failed(tmp_path, file):
    failure = run_case(str(file.parent.relative_to(REGRESSIONS)), file.read_bytes(), tmp_path)
    assert failure is None, repr(failure)


@pytest.mark.parametrize("name", [name for name in targets() if not name.startswith("run/")])
def test_damaged_examples_are_refused_in_one_line(tmp_path, name):
    target, random_numbers = targets()[name], random.Random(name)
    for data in (*target.seeds, *(mutated(random_numbers, target.seeds, target.fragments) for _ in range(NUM_MUTATED))):
        failure = run_case(name, data, tmp_path)
        assert failure is None, (data, failure)


@pytest.mark.parametrize("name", ["delimited.csv", "rdf.ttl", "rules", "set", "recipe", "space"])
@settings(max_examples=40)
@given(text=st.text(), noise=st.binary())
def test_any_text_and_any_bytes(tmp_path_factory, name, text, noise):
    folder = tmp_path_factory.mktemp("any")
    for data in (
        text.encode("utf-8", "surrogatepass"),
        noise,
        targets()[name].seeds[0] + text.encode("utf-8", "replace"),
    ):
        failure = run_case(name, data, folder)
        assert failure is None, (data, failure)
