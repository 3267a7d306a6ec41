"""Which device computes: picked once, said in words."""

from __future__ import annotations

import torch

from pairre.errors import DeviceError, suggest

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
