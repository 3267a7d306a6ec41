"""Work that goes on in a thread of its own while the process does something else, one piece at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


class Background:
    """A piece of work that was started, if there is one."""

    def __init__(self) -> None:
        self._work: Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the work goes on."""
        return self._work is not None and not self._work.done()

    def start(self, work: Callable[[], None]) -> None:
        """Begin a piece of work; the one before must be finished."""
        assert self._work is None
        thread = ThreadPoolExecutor(1)
        self._work = thread.submit(work)
        thread.shutdown(wait=False)

    def finish(self) -> None:
        """Wait until the work has ended, and raise its error."""
        work, self._work = self._work, None
        if work:
            work.result()

    def give_up(self) -> None:
        """Wait until the work has ended, in whatever way."""
        if self._work:
            wait([self._work])
        self._work = None
