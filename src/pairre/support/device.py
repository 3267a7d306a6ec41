"""Pick the device that computes, and how exactly it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pairre.support.errors import DeviceError, suggest

_TYPES = ("auto", "cpu", "cuda")
_OTHER_NAMES = {"gpu": "cuda", "nvidia": "cuda"}


def pick_device(name: str = "auto", number_here: int = 0) -> torch.device:
    """Return the device of a name: `auto` is the GPU if there is one, else the CPU; `cuda:1` names one of several.

    Of several processes on a machine, each has a number, and where the name has none they take GPUs in turn.
    """
    kind, *number = name.split(":", 1)
    if kind not in _TYPES:
        meant = ":".join([_OTHER_NAMES.get(kind.lower(), kind.lower()), *number])
        near = f"; did you mean '{meant}'?" if kind.lower() in _OTHER_NAMES else suggest(name, _TYPES)
        raise DeviceError(f"device '{name}': unknown{near}; devices: {', '.join(_TYPES)}")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        turn = number_here % max(1, torch.cuda.device_count()) if number_here else 0
        device = torch.device(f"cuda:{turn}" if name == "cuda" else name)
    except RuntimeError:
        raise DeviceError(f"device '{name}': write cpu, cuda or cuda:0") from None
    num_devices = torch.cuda.device_count()
    if device.type == "cuda" and device.index >= num_devices:
        raise DeviceError(f"device '{name}': this machine has {num_devices} CUDA devices; try --device cpu")
    if device.type == "cuda" and turn:
        torch.cuda.set_device(device)  # on which Triton starts kernels, wherever their tensors are
    return device


@contextmanager
def products_in_tf32(rounded: bool) -> Iterator[None]:
    """Let GPUs round the factors of products of float32 matrices to TF32 inside, if that is wanted."""
    before = torch.get_float32_matmul_precision()
    if rounded:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
