"""Which device computes: picked once, said in words; and work that is recorded once and replayed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from pairre.support.errors import DeviceError, suggest

_KINDS = ("auto", "cpu", "cuda")


def pick_device(name: str = "auto") -> torch.device:
    """`auto` is the GPU where there is one, else the CPU; `cuda:1` names one of several."""
    kind = name.split(":")[0]
    if kind not in _KINDS:
        raise DeviceError(f"device '{name}': unknown{suggest(name, _KINDS)}; devices: {', '.join(_KINDS)}")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device("cuda:0" if name == "cuda" else name)
    except RuntimeError:
        raise DeviceError(f"device '{name}': write cpu, cuda or cuda:0") from None
    there = torch.cuda.device_count()
    if device.type == "cuda" and device.index >= there:
        raise DeviceError(f"device '{name}': this machine has {there} CUDA devices; try --device cpu")
    return device


class Recorded:
    """A call without arguments. On a GPU its launches are recorded as a CUDA graph after two plain runs, then replayed.

    So the call must do the same launches on the same memory every time, and must not wait for the device. `warm` says
    that another call has done all of its launches before, so that it needs no plain runs.
    """

    def __init__(self, call: Callable[[], None], device: torch.device, warm: bool = False) -> None:
        self._call, self._plain_runs = call, (0 if warm else 2) if device.type == "cuda" else -1
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def is_warm(self) -> bool:
        """Whether the next call is recorded, or replays."""
        return self._plain_runs == 0

    def __call__(self) -> None:
        """Do it."""
        if self._graph is not None:
            self._graph.replay()
        elif self._plain_runs:
            self._plain_runs -= 1
            self._call()
        else:
            gc.disable()  # a graph that is thrown away while another is recorded would spoil it
            gc.freeze()  # torch collects garbage before it records, which among all modules takes long
            try:
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph):
                    self._call()
            finally:
                gc.unfreeze()
                gc.enable()
            self._graph.replay()


class Aside:
    """Work that a GPU may do beside what follows, until `join`; elsewhere it is done in place."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @contextmanager
    def work(self) -> Iterator[None]:
        """What is asked for here starts when all that was asked for before is done."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """What is asked for from here on waits for that work."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
