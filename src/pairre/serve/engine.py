"""The engine of a server: scorer processes that share one copy of each run, and are started again when they end.

The process with the event loop does no arithmetic and loads no torch. Short calls go to the scorers, in batches of
whatever waits. Long ones, and what is prepared in the background, have a process of their own. A GPU is held by one
process, which does all of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairre.serve.bounds import SLOW
from pairre.serve.contract import EngineLostError, unknown_run
from pairre.serve.lanes import Lane, LaneOptions
from pairre.serve.process import ScorerProcess
from pairre.serve.wire import Frame, json_frame, read_answers
from pairre.support import plugins
from pairre.support.errors import PairREError

_SWEEP = 0.25  # seconds between two looks at deadlines
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0  # seconds before a process that keeps ending is started again
_MOST_SCORERS = 8  # unless more are asked for: each takes some 300 MB beside what is shared


@dataclass(frozen=True)
class EngineOptions:
    """How runs are opened, and how many calls are worked on."""

    workers: int = 0  # scorer processes; 0 for one less than there are cores, and at most eight
    device: str = "auto"
    verify: bool = True
    max_batch: int = 32
    max_waiting: int = 256  # short calls; a quarter of that for long ones
    seconds: float = 10.0  # for a short call
    long_seconds: float = 120.0


class ProcessEngine:
    """Answers calls by scorer processes; see `contract.Engine`."""

    def __init__(
        self,
        runs: Mapping[str, Path],
        options: EngineOptions | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._runs, self._options, self._say = dict(runs), options or EngineOptions(), say
        o = self._options
        self._short = Lane(LaneOptions("calls", o.max_batch, 2, o.max_waiting, o.seconds))
        self._long = Lane(LaneOptions("long calls", 1, 1, max(1, o.max_waiting // 4), o.long_seconds))
        self._rows = tempfile.TemporaryFile(prefix="pairre-rows-")  # noqa: SIM115 — it lives as long as the engine
        self._processes: dict[int, ScorerProcess] = {}
        self._layouts: dict[str, Any] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._on_gpu = self._stopping = False
        self._threads, self.num_restarts = 1, 0

    # --- start and stop ---

    async def start(self) -> None:
        """Open the runs in the first process, which prepares what the others share, then in the others."""
        scorers = self._options.workers or min(_MOST_SCORERS, max(1, num_cores() - 1))
        places = range(scorers + 1)  # the last is for long calls
        self._threads = max(1, num_cores() // len(places))
        self._say(f"starting {len(places)} processes")
        processes = [await self._spawn(place) for place in places]  # all load libraries meanwhile
        try:
            values = await self._open(processes[0], self._options.verify)
            self._layouts, self._on_gpu = values["rows"], values["device"] != "cpu"
            self._admit(processes[0])
            others = processes[1:]
            if self._on_gpu:
                await asyncio.gather(*(process.stop() for process in others))
                others = []
            if others:
                self._say("opening the same in the other processes")
            await asyncio.gather(*(self._open_and_admit(process) for process in others))
        except BaseException:
            await self.stop()
            raise
        self._keepers = [asyncio.create_task(self._keep(p)) for p in (processes[0], *others)]
        self._keepers.append(asyncio.create_task(self._sweep()))

    async def stop(self) -> None:
        """End all processes."""
        self._stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(process.stop() for process in self._processes.values()))
        self._rows.close()

    def ready(self) -> bool:
        """Return whether a process answers short calls."""
        return self._short.is_open and not self._stopping

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes that run."""
        return [one.pid for one in self._processes.values() if one.pid is not None and not one.ended.is_set()]

    def numbers(self) -> dict[str, int]:
        """Return counts for the metrics of the server."""
        return {
            "processes": len(self.pids),
            "restarts": self.num_restarts,
            "waiting": self._short.num_waiting + self._long.num_waiting,
            "calls": self._short.num_calls + self._long.num_calls,
            "batches": self._short.num_batches + self._long.num_batches,
            "refused": self._short.num_refused + self._long.num_refused,
        }

    # --- calls ---

    async def call(self, run: str, function: str, arguments: dict[str, Any]) -> Any:
        """Return the answer of a function, as plain values."""
        return json.loads(await self.call_json(run, function, arguments))

    async def call_json(self, run: str, function: str, arguments: Mapping[str, Any]) -> bytes:
        """Return the answer of a function as JSON, just as the scorer process wrote it."""
        if run not in self._runs:
            raise unknown_run(run, list(self._runs))
        if self._stopping:
            raise EngineLostError("the server is stopping", retry_after=5.0)
        return await (self._long if function in SLOW else self._short).call(run, function, arguments)

    # --- processes ---

    async def _spawn(self, place: int) -> ScorerProcess:
        process = self._processes[place] = ScorerProcess(self, place)
        await process.start(self._rows)
        return process

    async def _open(self, process: ScorerProcess, verify: bool) -> dict[str, Any]:
        """Have a process open the runs, and return what it says of them."""
        setup = {
            "runs": {name: str(path.absolute()) for name, path in self._runs.items()},
            "plugins": plugins.loaded,
            "device": self._options.device,
            "verify": verify,
            "rows": self._layouts,
            "threads": self._threads,
        }
        process.send(json_frame("setup", setup))
        return await process.opened

    async def _open_and_admit(self, process: ScorerProcess) -> None:
        """Open the runs in a process that is not the first, and give it calls."""
        await self._open(process, verify=False)
        self._admit(process)

    def _admit(self, process: ScorerProcess) -> None:
        """Give calls to a process that is ready: short ones to all but the last, long ones to the last."""
        if process.ended.is_set():
            return
        is_last = self._on_gpu or process.place == max(self._processes)
        if self._on_gpu or not is_last:
            self._short.add(process)
        if is_last:
            self._long.add(process)
            process.send(json_frame("prepare", None))
        process.ready = True

    async def _keep(self, process: ScorerProcess) -> None:
        """Start a process again whenever it ends."""
        loop, pause = asyncio.get_running_loop(), _FIRST_PAUSE
        while True:
            began = loop.time()
            await process.ended.wait()
            await process.reap()
            pause = _FIRST_PAUSE if loop.time() - began > _LONGEST_PAUSE else min(2 * pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)
            self.num_restarts += 1
            try:
                process = await self._spawn(process.place)
                await self._open_and_admit(process)
            except (PairREError, OSError):  # no memory, a run that cannot be opened any more, or killed meanwhile
                process = self._processes[process.place]
                process.kill()

    async def _sweep(self) -> None:
        """Refuse calls that take too long, and end processes that are stuck in one."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP)
            for lane in (self._short, self._long):
                for process in lane.refuse_late(loop.time()):
                    process.kill()

    # --- what processes say ---

    def received(self, process: ScorerProcess, frame: Frame) -> None:
        """Take a message of a process."""
        if frame.tag == "answers":
            answers = list(read_answers(frame.data))
            _ = self._short.answered(process, answers) or self._long.answered(process, answers)
            return
        opened = process.opened
        if frame.tag == "note" and process.place == 0 and not self._keepers:
            self._say(frame.json())
        elif frame.tag == "ready" and not opened.done():
            opened.set_result(frame.json())
        elif frame.tag == "failed" and not opened.done():
            opened.set_exception(PairREError(frame.json()["message"]))

    def lost(self, process: ScorerProcess) -> None:
        """Refuse what a process was working on."""
        if not process.opened.done():
            process.opened.set_exception(EngineLostError("a scorer process ended while it opened the runs"))
            process.opened.exception()  # which nobody may be waiting for
        for lane in (self._short, self._long):
            lane.lost(process)


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
