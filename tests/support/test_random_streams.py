"""One number at a time is what a whole tensor of them is."""

import pytest
import torch

from pairre.support import random_streams, randomness

STREAM = random_streams.key(0, "test")


def test_bits_and_integers():
    counters = [0, 1, 2**40, 2**62, -1]
    expected = randomness.bits(STREAM, torch.tensor(counters)).tolist()
    assert [int(random_streams.random_bits(STREAM, n)) for n in counters] == [value % 2**64 for value in expected]
    for below in (1, 7, 2**31 - 1):
        expected = randomness.integers(STREAM, torch.tensor(counters), below).tolist()
        assert [random_streams.random_below(STREAM, n, below) for n in counters] == expected


@pytest.mark.parametrize("size", [1, 2, 3, 10, 1000, 10_007])
def test_permutations(size):
    expected = randomness.permute(STREAM, torch.arange(size), size)
    found = [random_streams.permuted(STREAM, place, size, *random_streams.grid(size)) for place in range(size)]
    assert found == expected.tolist()
    assert sorted(found) == list(range(size))


def test_any_part_of_a_permutation_can_be_evaluated():
    size = 10_007
    whole = randomness.permute(STREAM, torch.arange(size), size)
    for part in (torch.tensor([5]), torch.arange(9000, size), torch.tensor([4, 4, 1])):
        assert torch.equal(randomness.permute(STREAM, part, size), whole[part])
