"""Lanes: calls that wait for scorer processes, are sent to them in batches, and are answered or refused in time."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pairre.serve.contract import EngineBusyError, EngineLostError, error_of_values
from pairre.serve.process import ScorerProcess
from pairre.serve.wire import Answered, Tag, json_frame

_RETRY_LOST = 2.0  # seconds in which a process is usually back


@dataclass(frozen=True)
class LaneOptions:
    """How many calls wait and are sent together, and how long one may take."""

    tag: Tag
    max_batch: int  # calls that are sent together
    depth: int  # batches that a process has at a time: the second is there when the first is answered
    max_waiting: int  # calls that wait; more are refused
    seconds: float  # until a call is refused that was not answered


@dataclass(eq=False)
class Call:
    """A call, and the future of its answer as JSON."""

    values: tuple[int, str, str, Mapping[str, Any]]  # number, run, function, arguments
    answer: asyncio.Future[bytes]
    deadline: float


@dataclass(eq=False)
class _Slot:
    """What a process is working on."""

    process: ScorerProcess
    batches: int = 0
    calls: dict[int, Call] = field(default_factory=dict)


class Lane:
    """Calls of one kind and the processes that answer them; whatever waits when one is free goes as one batch."""

    def __init__(self, options: LaneOptions) -> None:
        self.options = options
        self._slots: dict[ScorerProcess, _Slot] = {}
        self._waiting: deque[Call] = deque()
        self._numbers, self._scheduled = itertools.count(), False
        self.num_calls = self.num_batches = self.num_refused = 0

    @property
    def num_waiting(self) -> int:
        """The number of calls that no process has yet."""
        return len(self._waiting)

    @property
    def is_open(self) -> bool:
        """Whether there is a process that answers calls."""
        return bool(self._slots)

    def add(self, process: ScorerProcess) -> None:
        """Have a process answer calls."""
        self._slots[process] = _Slot(process)

    async def call(self, run: str, function: str, arguments: Mapping[str, Any]) -> bytes:
        """Return the JSON of an answer."""
        loop, options = asyncio.get_running_loop(), self.options
        if not self._slots:
            self.num_refused += 1
            raise _lost()
        if len(self._waiting) >= options.max_waiting:
            self.num_refused += 1
            raise EngineBusyError("too much is asked at the same time; try again", retry_after=1.0)
        values = next(self._numbers), run, function, arguments
        call = Call(values, loop.create_future(), loop.time() + options.seconds)
        self._waiting.append(call)
        if not self._scheduled:  # once all requests are read that came with this one
            self._scheduled = True
            loop.call_soon(self._dispatch)
        return await call.answer

    def _dispatch(self) -> None:
        """Send what waits to processes that have room for a batch."""
        self._scheduled = False
        while self._waiting and self._slots:
            slot = min(self._slots.values(), key=lambda slot: slot.batches)
            if slot.batches >= self.options.depth:
                return
            batch = list[Call]()
            while self._waiting and len(batch) < self.options.max_batch:
                call = self._waiting.popleft()
                if not call.answer.done():  # a client that went away, or a deadline
                    batch.append(call)
            if batch:
                slot.batches += 1
                slot.calls |= {call.values[0]: call for call in batch}
                self.num_calls, self.num_batches = self.num_calls + len(batch), self.num_batches + 1
                slot.process.send(json_frame(self.options.tag, [call.values for call in batch]))

    def answered(self, process: ScorerProcess, answers: list[Answered]) -> bool:
        """Pass on the answers of a batch; return whether it was a batch of this lane."""
        slot = self._slots.get(process)
        if slot is None or not answers or answers[0].number not in slot.calls:
            return False
        slot.batches -= 1
        for answer in answers:
            call = slot.calls.pop(answer.number)
            if call.answer.done():
                continue
            if answer.is_error:
                call.answer.set_exception(error_of_values(json.loads(answer.body)))
            else:
                call.answer.set_result(answer.body)
        self._dispatch()
        return True

    def lost(self, process: ScorerProcess) -> None:
        """Refuse what a process was working on when it ended, and what waits if there is no other process."""
        slot = self._slots.pop(process, None)
        calls = list(slot.calls.values()) if slot else []
        if not self._slots:
            calls += self._waiting
            self._waiting.clear()
        for call in calls:
            self._refuse(call, _lost())

    def refuse_late(self, now: float) -> list[ScorerProcess]:
        """Refuse calls whose time is over; return processes that have worked on one for twice its time."""
        late = EngineBusyError(f"not answered within {self.options.seconds:g} seconds; try again", retry_after=1.0)
        while self._waiting and (self._waiting[0].deadline < now or self._waiting[0].answer.done()):
            self._refuse(self._waiting.popleft(), late)
        stuck = []
        for slot in self._slots.values():
            for call in slot.calls.values():
                if call.deadline < now:
                    self._refuse(call, late)
            if any(call.deadline + self.options.seconds < now for call in slot.calls.values()):
                stuck.append(slot.process)
        return stuck

    def _refuse(self, call: Call, error: EngineBusyError | EngineLostError) -> None:
        if not call.answer.done():
            self.num_refused += 1
            call.answer.set_exception(error)


def _lost() -> EngineLostError:
    return EngineLostError("the process that computes answers has ended and is started again", retry_after=_RETRY_LOST)
