"""Loops on all cores: every row once, whatever the number of threads; errors come back; a forked process works too."""

import multiprocessing

import numpy as np
import pytest
import torch

from pairre.support.threads import parallel_for


def mark(out, start, stop):
    out[start:stop] += 1


def fail(start, stop):
    if stop == 40:
        raise ValueError("the last piece")


def in_a_fork():
    out = np.zeros(100)
    parallel_for(mark, 100, out)
    assert (out == 1).all()


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("num_rows", [0, 1, 7, 8, 9, 100, 1001])
@pytest.mark.parametrize("multiple", [1, 8])
def test_every_row_once(threads, num_rows, multiple):
    out = np.zeros(num_rows)
    starts = []

    def noted(out, start, stop):
        starts.append(start)
        mark(out, start, stop)

    parallel_for(noted, num_rows, out, multiple=multiple)
    assert (out == 1).all()
    assert all(start % multiple == 0 for start in starts)


def test_an_error_in_a_piece_is_raised(threads):
    with pytest.raises(ValueError, match="the last piece"):
        parallel_for(fail, 40)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(threads):
    in_a_fork()  # the pool of this process has started
    process = multiprocessing.get_context("fork").Process(target=in_a_fork)
    process.start()
    process.join(20)
    assert process.exitcode == 0
