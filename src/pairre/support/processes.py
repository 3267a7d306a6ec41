"""The processes that train or answer together, and the little that they must say to each other.

One process is `Processes()`: nothing is sent, and torch.distributed is never loaded. Several are described by the
environment, as torchrun, Slurm's srun or `pairre train --nproc` set it.
"""

from __future__ import annotations

import atexit
import ctypes
import datetime
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pairre.support.errors import PairREError

if TYPE_CHECKING:
    from torch import Tensor

STORE_FILE = "PAIRRE_STORE"  # names a file by which the processes of one machine find each other
_TIMEOUT = datetime.timedelta(hours=2)  # rank 0 may store a large graph meanwhile; a rank that dies is seen at once
_SLURM_PORT = 20_000
_PR_SET_PDEATHSIG = 1


class FailedElsewhereError(PairREError):
    """Another rank failed and says why; this one stops with it, without a word."""

    def __init__(self) -> None:
        super().__init__("")


class LostRankError(PairREError):
    """Another rank ended in the middle of an exchange."""

    def __init__(self) -> None:
        is_told = STORE_FILE in os.environ  # by who started the processes
        super().__init__("" if is_told else "another process of this training has ended, so that this one stops")


@dataclass(frozen=True)
class Place:
    """Which of several processes this is, as the environment says."""

    rank: int
    size: int
    local_rank: int = 0  # among those of this machine
    life: int = 0  # how often all of them were started again
    local_size: int = 1  # how many of them are on this machine, at most


def place() -> Place | None:
    """Return which of several processes this one is, or None if it is alone."""
    found = _place_in("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT", "LOCAL_WORLD_SIZE")
    # A batch script of Slurm has no step of tasks: only what srun starts has one.
    by_slurm = "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_RESTART_COUNT"
    found = found or _place_in(*by_slurm, "SLURM_STEP_TASKS_PER_NODE")
    return found if found and found.size > 1 else None


def _place_in(*names: str) -> Place | None:
    """Return the place that five variables say: rank, size, rank on the machine, life, size on the machine."""
    rank, size, local, life, here = (os.environ.get(name, "") for name in names)
    if not rank.isdecimal() or not size.isdecimal():
        return None
    sizes = [int(number) for number in re.findall(r"(\d+)(?:\(x\d+\))?", here)]  # Slurm's of each node: 8(x3),4
    alike = int(size) if STORE_FILE in os.environ else 1  # where nothing says it
    return Place(int(rank), int(size), int(local or 0), int(life or 0), max(sizes, default=alike))


def first_of_nodes(nodes: str) -> str:
    """Return the first host of a list as Slurm writes it: `node[07-12,20],login1` → `node07`."""
    found = re.match(r"([^,\[]+)(?:\[([^\]]+)\])?([^,]*)", nodes)
    if not found:
        return "localhost"
    stem, numbers, end = found.groups()
    return stem + re.split("[-,]", numbers)[0] + end if numbers else stem


@dataclass(frozen=True)
class Processes:
    """The processes that train or answer together. All of them call the methods that exchange something, in one order.

    `is_first`, `block_of_rows` and `even_slice` exchange nothing.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    life: int = 0
    local_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that shows progress and writes what is written once."""
        return self.rank == 0

    def block_of_rows(self, total: int) -> range:
        """Return the rows of a table that this rank has: as many as any other, but for the last ranks."""
        size = -(-total // self.size)
        return range(min(total, self.rank * size), min(total, (self.rank + 1) * size))

    def even_slice(self, num: int) -> slice:
        """Return this rank's part of `num` items that all processes know; none is empty unless there are too few."""
        return slice(num * self.rank // self.size, num * (self.rank + 1) // self.size)

    def sum(self, x: Tensor) -> Tensor:
        """Add up tensors of one shape, in place."""
        return self._reduce(x, "SUM")

    def maximum(self, x: Tensor) -> Tensor:
        """Replace each element of tensors of one shape by the greatest that any process has, in place."""
        return self._reduce(x, "MAX")

    def _reduce(self, x: Tensor, how: str) -> Tensor:
        if self.size > 1:
            import torch.distributed as dist

            host = x.cpu()  # itself, unless it is on another device
            exchanged(dist.all_reduce, host, getattr(dist.ReduceOp, how))
            if host is not x:
                x.copy_(host)
        return x

    def any(self, flag: bool) -> bool:
        """Return whether any rank says so."""
        return bool(self.greatest(int(flag)))

    def greatest(self, *numbers: int) -> Any:
        """Return the greatest of a whole number that each rank has, or of each of several."""
        if self.size == 1:
            return numbers if len(numbers) > 1 else numbers[0]
        import torch

        found = self.maximum(torch.tensor(numbers, dtype=torch.int64)).tolist()
        return found if len(found) > 1 else found[0]

    def gather(self, *tensors: Tensor) -> list[Tensor]:
        """Return each tensor with the rows of all processes, in order of ranks.

        Processes may have different numbers of rows; the tensors of one call have equally many.
        """
        if self.size == 1:
            return list(tensors)
        import torch
        import torch.distributed as dist

        num = torch.tensor([len(tensors[0])])
        sizes = [torch.empty_like(num) for _ in range(self.size)]
        exchanged(dist.all_gather, sizes, num)
        counts = [int(size) for size in sizes]
        found = []
        for tensor in tensors:  # gloo ends the process where sizes differ, so that all send the most
            sent = tensor.new_zeros(max(counts), *tensor.shape[1:], device="cpu")
            sent[: len(tensor)] = tensor
            parts = [torch.empty_like(sent) for _ in counts]
            exchanged(dist.all_gather, parts, sent)
            whole = torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
            found.append(whole.to(tensor.device))
        return found

    @contextmanager
    def together(self) -> Iterator[None]:
        """Have all processes end a block well, or all raise: where one fails, the others raise FailedElsewhereError.

        A block that is entered by several processes must not exchange anything: who failed would be waited for in vain.
        """
        failure: BaseException | None = None
        try:
            yield
        except (PairREError, OSError, MemoryError) as error:
            failure = error
        failed = self.any(failure is not None)
        if failure:
            raise failure
        if failed:
            raise FailedElsewhereError


ALONE = Processes()


def exchanged(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of torch.distributed; a LostRankError says that another rank has ended."""
    try:
        return call(*arguments)
    except RuntimeError as error:
        raise LostRankError from error


@cache
def join_processes() -> Processes:
    """Return the processes that the environment describes, after all have met, or this process alone."""
    here = place()
    if here is None:
        return ALONE
    import torch.distributed as dist

    if STORE_FILE in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # if who started the processes is killed
    # Threads of gloo that still run when Python ends would abort the process.
    atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())
    dist.init_process_group("gloo", store=_store(), rank=here.rank, world_size=here.size, timeout=_TIMEOUT)
    return Processes(here.rank, here.size, here.local_rank, here.life, here.local_size)


@cache
def _store() -> Any:
    """Return what the processes of one life meet by; one that was left over from a life before would confuse them."""
    dist: Any = import_module("torch.distributed")  # whose stores mypy does not find
    here = place()
    assert here
    if file := os.environ.get(STORE_FILE):
        return dist.FileStore(file, here.size)
    nodes = os.environ.get("SLURM_STEP_NODELIST", os.environ.get("SLURM_JOB_NODELIST", ""))
    host = os.environ.get("MASTER_ADDR") or first_of_nodes(nodes)
    port = int(os.environ.get("MASTER_PORT") or _SLURM_PORT + int(os.environ.get("SLURM_JOB_ID", 0)) % 20_000)
    hosts = here.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return dist.PrefixStore(f"life{here.life}", dist.TCPStore(host, port, is_master=hosts, timeout=_TIMEOUT))


def speaks_first() -> bool:
    """Return whether this process is the first of several to say how they ended, or is alone."""
    here = place()
    if here is None:
        return True
    if not _store.cache_info().currsize:
        return here.rank == 0
    try:
        return int(_store().add("spoken", 1)) == 1
    except RuntimeError:  # the rank that kept the store has gone, and has spoken
        return False
