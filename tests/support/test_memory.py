"""Amounts of memory as people write them."""

import pytest

from pairre.support.errors import PairREError
from pairre.support.memory import parse_bytes


@pytest.mark.parametrize(
    ("text", "number"), [("2GB", 2e9), ("500 MB", 5e8), ("1.5GiB", 1.5 * 2**30), ("10k", 1e4), ("7", 7), ("1tb", 1e12)]
)
def test_amounts_of_memory(text, number):
    assert parse_bytes(text) == number


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "2 potatoes", "1e9", "1,5GB"])
def test_what_is_no_amount_of_memory(text):
    with pytest.raises(PairREError, match="an amount of memory such as 2GB or 500MB expected"):
        parse_bytes(text)


def test_absurd_amounts_of_memory_are_refused():
    with pytest.raises(PairREError, match="more memory than any machine has"):
        parse_bytes("99999999999999999999999TB")
