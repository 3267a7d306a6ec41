"""Ctrl-C that is not lost: what swallowed it is asked again, at the next place that checks.

Python raises KeyboardInterrupt wherever the main thread happens to be. Some code of other packages swallows it there:
PyArrow, while its `to_numpy` looks whether pandas can be imported, and every finaliser. The command then goes on as if
nothing had been pressed. Commands that take long therefore check between two parts of their work.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_pressed = threading.Event()


@contextmanager
def interrupts_noted() -> Iterator[None]:
    """Note each Ctrl-C within the block, beside raising KeyboardInterrupt; signals that others handle stay theirs."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    _pressed.clear()
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _pressed.clear()


def check_interrupt() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed in an `interrupts_noted` block that still goes on."""
    if _pressed.is_set() and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def _note(*_: object) -> None:
    _pressed.set()
    raise KeyboardInterrupt
