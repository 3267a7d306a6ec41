"""Loops over rows on all cores: a compiled kernel that lets go of the interpreter lock, and a pool of threads.

numba's own `parallel=True` is not used: a parallel function that comes from numba's cache was seen to round differently
from the same function just compiled, so a resumed run would not have ended in the same bits. It also brings a second
pool of OpenMP threads beside torch's. A plain function is the same either way, and handing out pieces costs little.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch

_PIECES = 4  # pieces a thread, so that one that is held up leaves its share to the others


def over_rows(kernel: Callable[..., Any], num_rows: int, *arguments: Any, multiple: int = 1) -> None:
    """Call kernel(*arguments, start, stop) for pieces of range(num_rows), as many at a time as torch has threads.

    Pieces start at multiples of `multiple`. Each row must depend on its own number alone, so that pieces do not matter.
    """
    num_threads = torch.get_num_threads()
    size = -(-num_rows // (_PIECES * num_threads * multiple)) * multiple
    starts = iter(range(0, num_rows, max(size, 1)))  # shared: whoever is free takes the next piece

    def work() -> None:
        for start in starts:
            kernel(*arguments, start, min(start + size, num_rows))

    others = [_pool(num_threads).submit(work) for _ in range(num_threads - 1)]
    work()
    for other in others:
        other.result()


@cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    """Threads beside the one that asks."""
    return ThreadPoolExecutor(num_threads - 1, thread_name_prefix="pairre")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has the pool but none of its threads
