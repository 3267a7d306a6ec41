"""Ctrl-C that other code swallows is raised again at the next place that checks; that of others is left alone."""

import contextlib
import signal
import threading

import pytest

from pairre.cli.console import progress_bar
from pairre.support.interrupts import check_interrupt, interrupts_noted


def swallow():
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_what_was_swallowed_is_raised_where_a_command_checks():
    check_interrupt()
    with interrupts_noted(), progress_bar("counting", 2) as advance:
        advance(1)
        swallow()
        thread = threading.Thread(target=advance, args=(1,))  # which could not end the command
        thread.start()
        thread.join()
        with pytest.raises(KeyboardInterrupt):
            advance(1)
    check_interrupt()  # what came before is over
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_block_within_another_is_one_with_it():
    with interrupts_noted():
        swallow()
        with interrupts_noted(), pytest.raises(KeyboardInterrupt):
            check_interrupt()


def test_signals_that_somebody_else_handles_stay_theirs():
    received = []
    previous = signal.signal(signal.SIGINT, lambda *_: received.append(1))
    try:
        with interrupts_noted():
            signal.raise_signal(signal.SIGINT)
            check_interrupt()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert received == [1]
