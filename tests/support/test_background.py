"""Work in a thread: it goes on meanwhile, and its error is raised where its end is asked for."""

import threading

import pytest

from pairre.support.background import Background


def test_work_goes_on_until_its_end_is_asked_for():
    background, may_end, done = Background(), threading.Event(), []
    assert not background.is_busy
    background.finish()
    background.start(lambda: done.append(may_end.wait(10)))
    assert background.is_busy
    may_end.set()
    background.finish()
    assert done == [True]
    assert not background.is_busy


def test_an_error_is_raised_once_or_given_up():
    def fail():
        raise OSError("full")

    background = Background()
    background.start(fail)
    with pytest.raises(OSError, match="full"):
        background.finish()
    background.finish()
    background.start(fail)
    background.give_up()
    background.finish()
