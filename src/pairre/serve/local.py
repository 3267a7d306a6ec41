"""An engine within the process of the server: one thread for short answers, one for long ones, one for preparation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pairre.serve.answers import answer_call, answer_json
from pairre.serve.bounds import SLOW
from pairre.serve.contract import EngineBusyError, unknown_run
from pairre.serve.parts import prepare
from pairre.serve.state import RunState

MAX_WAITING = 64  # calls that wait for each thread


class LocalEngine:
    """An engine whose calls run in threads of this process."""

    def __init__(self, open_states: Callable[[], Sequence[RunState]], *, prepares: bool = True) -> None:
        self._open, self._states = open_states, dict[str, RunState]()
        self._pools = [ThreadPoolExecutor(1, thread_name_prefix=f"pairre-{name}") for name in ("quick", "slow")]
        self._waiting = [0, 0]
        self._stopping, self._prepares = threading.Event(), prepares
        self._preparation: threading.Thread | None = None

    async def start(self) -> None:
        """Open the runs, and begin to prepare what takes long."""
        self._states = {state.name: state for state in await asyncio.to_thread(self._open)}
        if self._prepares:
            self._preparation = threading.Thread(target=self._prepare, name="pairre-prepare", daemon=True)
            self._preparation.start()

    def _prepare(self) -> None:
        for state in self._states.values():
            prepare(state.run, state.store, self._stopping.is_set)

    async def stop(self) -> None:
        """Finish what is being computed."""
        self._stopping.set()
        for pool in self._pools:
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)
        if self._preparation is not None:
            await asyncio.to_thread(self._preparation.join)

    def ready(self) -> bool:
        """Return whether calls are answered: the runs are open, and the engine does not stop."""
        return bool(self._states) and not self._stopping.is_set()

    def numbers(self) -> dict[str, int]:
        """Return how many calls wait or are computed."""
        return {"waiting": sum(self._waiting)}

    async def call(self, run: str, function: str, arguments: dict[str, Any]) -> Any:
        """Return the answer of a function; an EngineBusyError says that too many wait."""
        return await self._computed(run, function, arguments, answer_call)

    async def call_json(self, run: str, function: str, arguments: dict[str, Any]) -> bytes:
        """Return the answer of a function as JSON."""
        found: bytes = await self._computed(run, function, arguments, answer_json)
        return found

    async def _computed(self, run: str, function: str, arguments: dict[str, Any], compute: Callable[..., Any]) -> Any:
        if run not in self._states:
            raise unknown_run(run, list(self._states))
        kind = int(function in SLOW)
        if self._waiting[kind] >= MAX_WAITING or self._stopping.is_set():
            raise EngineBusyError("too much is asked at the same time; try again", retry_after=1.0)
        self._waiting[kind] += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pools[kind], compute, self._states[run], function, arguments)
        finally:
            self._waiting[kind] -= 1
