"""Memory of the host that a GPU reads and writes by itself, as tensors of that GPU: for tables larger than its memory.

The memory is pinned, so that kernels reach it over the bus by the address that the host knows, also from within a CUDA
graph. Whatever takes a tensor of the GPU takes such a tensor, and computes the same bits.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pairre.support.errors import DeviceError
from pairre.support.memory import readable_bytes


class _Pages:
    """Pinned memory that starts as zeros; it lives as long as a tensor of it does.

    PyTorch's own pinned memory is rounded up to a power of two, which would waste up to half of the host.
    """

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for advice in ("MADV_HUGEPAGE", "MADV_DONTFORK"):  # a forked process would get a copy of what is pinned
            with contextlib.suppress(OSError, AttributeError):  # not every system can take it
                memory.madvise(getattr(mmap, advice))
        self.bytes = torch.frombuffer(memory, dtype=torch.uint8)  # on the CPU
        self.bytes[:: mmap.PAGESIZE] = 0  # all threads have pages made, which pinning would do one by one
        _pin(self.bytes, device)
        place = {"shape": (num_bytes,), "typestr": "|u1", "data": (self.bytes.data_ptr(), False), "version": 2}
        self.__cuda_array_interface__ = place
        weakref.finalize(self, _unpin, self.bytes.data_ptr(), device).atexit = False


_PAGES: weakref.WeakValueDictionary[int, _Pages] = weakref.WeakValueDictionary()  # by address


def host_zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return zeros of a device that are in the memory of the host, as all tensors of the CPU are."""
    num_bytes = math.prod(shape) * dtype.itemsize
    if not num_bytes or not _has_memory_of_its_own(device):
        return torch.zeros(shape, dtype=dtype, device=device)
    pages = _Pages(num_bytes, device)
    _PAGES[pages.bytes.data_ptr()] = pages
    return _as_tensor(pages, device).view(dtype).view(*shape)


def is_on_host(tensor: Tensor) -> bool:
    """Return whether a tensor is from `host_zeros`, or a part of one, while its device has memory of its own."""
    return _pages_of(tensor) is not None


def zeros_beside(tensor: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return zeros in the memory that another tensor is in."""
    if is_on_host(tensor):
        return host_zeros(shape, dtype, tensor.device)
    return torch.zeros(shape, dtype=dtype, device=tensor.device)


def on_cpu(tensor: Tensor) -> Tensor:
    """Return a tensor of the CPU with the same numbers: a copy, unless the memory of the host has them already."""
    pages = _pages_of(tensor)
    if pages is None:
        return tensor.cpu()
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)  # kernels may still be writing there
    numbers = pages.bytes.view(tensor.dtype)
    return numbers.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _pages_of(tensor: Tensor) -> _Pages | None:
    return None if tensor.is_meta or not _PAGES else _PAGES.get(tensor.untyped_storage().data_ptr())


def _has_memory_of_its_own(device: torch.device) -> bool:
    return device.type == "cuda"


def _as_tensor(pages: _Pages, device: torch.device) -> Tensor:
    tensor = torch.as_tensor(pages, device=device)
    assert tensor.data_ptr() == pages.bytes.data_ptr(), "copied to the device"
    return tensor


def _pin(memory: Tensor, device: torch.device) -> None:
    with torch.cuda.device(device):
        status = _cuda().cudaHostRegister(memory.data_ptr(), memory.numel(), 0)
    try:
        torch.cuda.check_error(status)
    except RuntimeError as error:
        size, why = readable_bytes(memory.numel()), str(error).partition("\n")[0]
        raise DeviceError(f"tables.place: {size} of the host's memory cannot be pinned for {device} ({why})") from error


def _unpin(address: int, device: torch.device) -> None:
    torch.cuda.synchronize(device)  # kernels may still be reading there
    _cuda().cudaHostUnregister(address)


def _cuda() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
