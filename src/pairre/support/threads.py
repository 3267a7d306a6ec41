"""Run a compiled kernel over rows on all cores, with a pool of threads.

numba's own `parallel=True` is not used: a parallel function that comes from numba's cache was seen to round differently
from the same function just compiled, so a resumed run would not have ended in the same bits. It also brings a second
pool of OpenMP threads beside torch's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch

_PIECES_PER_THREAD = 4  # a thread that is held up leaves its remaining pieces to the others


def parallel_for(kernel: Callable[..., Any], num_rows: int, *arguments: Any, multiple: int = 1) -> None:
    """Call `kernel(*arguments, start, stop)` for pieces of `range(num_rows)`, on as many threads as torch has.

    Pieces start at multiples of `multiple`. The result for a row must not depend on the piece that the row is in, so
    that results do not depend on the number of threads. The kernel should release the interpreter lock.
    """
    num_threads = torch.get_num_threads()
    size = -(-num_rows // (_PIECES_PER_THREAD * num_threads * multiple)) * multiple
    starts = iter(range(0, num_rows, max(size, 1)))  # shared: whichever thread is free takes the next piece

    def work() -> None:
        for start in starts:
            kernel(*arguments, start, min(start + size, num_rows))

    others = [_pool(num_threads).submit(work) for _ in range(num_threads - 1)]
    work()
    for other in others:
        other.result()


@cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    """Return the pool of threads that work beside the calling one."""
    return ThreadPoolExecutor(num_threads - 1, thread_name_prefix="pairre")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has the pool but none of its threads
