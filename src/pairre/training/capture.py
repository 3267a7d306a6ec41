"""What a CUDA device needs around a step: parts that overlap on side streams, and steps captured as CUDA graphs.

Nothing here changes what a step computes; on a CPU none of it is used.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pairre.graph import Side
from pairre.kernels import backend
from pairre.tables import EmbeddingTable, Gathered, TableGroup
from pairre.training.losses import ScoredBatch, Term
from pairre.training.sampling import STEP_SIDES, Batch, Sampler, Targets

if TYPE_CHECKING:
    from pairre.training.step import Trainer

STEPS_PER_LAUNCH = 20  # even, so that a launch begins with a step that corrupts tails


class SideStream:
    """Work that a GPU may do beside what follows, until `join`."""

    def __init__(self, device: torch.device) -> None:
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def fork(self) -> Iterator[None]:
        """Queue work on the side stream; it starts when everything that was queued before is done."""
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """Have everything that is queued from here on wait for the side stream."""
        torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


class CapturedCall:
    """A call without arguments whose launches are captured as a CUDA graph after two plain runs, then replayed.

    The call must launch the same kernels on the same memory every time and must not wait for the device. `warm` says
    that another call has launched all of its kernels before, so that it needs no plain runs.
    """

    def __init__(self, call: Callable[[], None], warm: bool = False) -> None:
        self._call, self._plain_runs = call, 0 if warm else 2
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def is_warm(self) -> bool:
        """Whether the next call is captured or replayed."""
        return self._plain_runs == 0

    def __call__(self) -> None:
        """Run, capture or replay the call."""
        if self._graph is not None:
            self._graph.replay()
        elif self._plain_runs:
            self._plain_runs -= 1
            self._call()
        else:
            gc.disable()  # a graph that is destroyed while another is captured would spoil it
            gc.freeze()  # torch collects garbage before it captures, which among all modules takes long
            try:
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph):
                    self._call()
            finally:
                gc.unfreeze()
                gc.enable()
            self._graph.replay()


class CapturedSteps:
    """The steps of a trainer as CUDA graphs: one for each side, and one of several steps."""

    steps_per_launch = STEPS_PER_LAUNCH

    def __init__(self, trainer: Trainer) -> None:
        proxy = weakref.proxy(trainer)  # so that the memory of a trainer that nobody needs is freed at once
        self._one = [CapturedCall(partial(_take_steps, proxy, [side])) for side in STEP_SIDES]
        several = [STEP_SIDES[i % 2] for i in range(STEPS_PER_LAUNCH)]
        self._several = CapturedCall(partial(_take_steps, proxy, several), warm=True)

    def run(self, number: int, stop: int) -> int:
        """Queue the step `number`, or several from there on that do not pass `stop`; return how many."""
        if number % 2 == 0 and number + STEPS_PER_LAUNCH <= stop and all(call.is_warm for call in self._one):
            self._several()
            return STEPS_PER_LAUNCH
        self._one[number % 2]()
        return 1


def _take_steps(trainer: Trainer, sides: list[Side]) -> None:
    for side in sides:
        trainer.step(side)


class OverlappedTables(TableGroup):
    """Tables of a model, each on a side stream of its own; equal ids are grouped beside all of that."""

    def __init__(self, tables: Mapping[str, EmbeddingTable], side: SideStream, device: torch.device) -> None:
        super().__init__(tables)
        self._grouping, self._kernels = side, backend(device.type)
        self._streams = {name: SideStream(device) for name in tables}

    def gather(self, ids: Mapping[str, Tensor], step: Tensor) -> dict[str, Gathered]:
        """Return the rows of every table."""
        with self._grouping.fork():
            groups = {name: self._kernels.group_ids(ids[name]) for name in self.tables}
        gathered = {}
        for name, table in self.tables.items():
            with self._streams[name].fork():
                gathered[name] = table.gather(ids[name], step, groups[name])
        self._join()
        return gathered

    def update(self, gathered: Mapping[str, Gathered], gradients: Mapping[str, Tensor], step: Tensor) -> None:
        """Update the gathered rows of every table."""
        for name, table in self.tables.items():
            with self._streams[name].fork():
                table.update(gathered[name], gradients[name], step)
        self._join()

    def _join(self) -> None:
        for stream in self._streams.values():
            stream.join()


class AfterSideStream:
    """A loss term that waits for a side stream first."""

    def __init__(self, term: Term, side: SideStream) -> None:
        self._term, self._side = term, side

    def __call__(self, scored: ScoredBatch) -> Tensor:
        """Return the value of the term."""
        self._side.join()
        return self._term(scored)


def _compute_beside(side: SideStream, sampler: Sampler, batch: Batch) -> Targets:
    """Return the targets of a batch, which are there once the side stream is joined."""
    with side.fork():
        return sampler.targets(batch)


def overlap(trainer: Trainer, device: torch.device) -> None:
    """Let the parts of a trainer's step that do not depend on each other run side by side on a GPU."""
    side = SideStream(device)
    trainer.tables = OverlappedTables(trainer.tables.tables, side, device)
    trainer.compute_targets = partial(_compute_beside, side, trainer.sampler)
    for terms in trainer.terms.values():
        terms[0] = AfterSideStream(terms[0], side)
