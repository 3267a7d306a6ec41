"""Start several processes of one command on this machine, and start all of them again where one was killed.

torchrun does the same over many machines. Here the exit code stays that of the command, an error of the user is told
once and starts nothing again, and the processes meet by a file: no port is needed, and none is left by a life before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pairre.support.errors import PairREError
from pairre.support.processes import STORE_FILE

MOST_LIVES = 11  # of one command; what kills it so often will kill it again
_GRACE = 10.0  # seconds for the other processes to notice that one has gone
_PAUSE = 0.05
_MOST_PER_CORE, _MOST_ON_ANY = 4, 16  # processes; each takes some hundred megabytes before it begins


def launch(arguments: Sequence[str], number: int, tell: Callable[[str], None]) -> int:
    """Run `pairre` with some arguments in several processes, and return the exit code of the first that failed.

    `tell` gets a line where a process was killed and all start again.
    """
    cores = os.cpu_count() or 1
    if number > (most := max(_MOST_ON_ANY, _MOST_PER_CORE * cores)):
        raise PairREError(f"--nproc {number:,}: at most {most} processes on this machine, which has {cores} cores")
    with (
        tempfile.TemporaryDirectory(prefix="pairre-processes-") as folder,
        _forwarded_signals() as (processes, received),
    ):
        for life in range(MOST_LIVES):
            store = Path(folder) / f"life-{life}"
            processes[:] = [_start(arguments, rank, number, life, store) for rank in range(number)]
            ended = _wait(processes)
            codes = [process.returncode for process in processes]
            killed = [rank for rank, code in enumerate(codes) if code < 0 and rank in ended]
            if received or not killed or not any(codes):
                code = next((codes[rank] for rank in ended if codes[rank]), 0)
                return code if code >= 0 else 128 - code
            by = signal.Signals(-codes[killed[0]]).name
            tell(f"process {killed[0] + 1} of {number} was killed ({by}); all start again from the last checkpoint")
    tell(f"a process was killed {MOST_LIVES} times; the same command with --resume continues")
    return 2


def _start(arguments: Sequence[str], rank: int, number: int, life: int, store: Path) -> subprocess.Popen[bytes]:
    """Start one rank, in a session of its own, so that Ctrl-C reaches it once: from here."""
    described = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": number, "TORCHELASTIC_RESTART_COUNT": life}
    environment = {**os.environ, **{name: str(value) for name, value in described.items()}, STORE_FILE: str(store)}
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // number)))
    if sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the name of the machine need not lead anywhere
    command = [sys.executable, "-m", "pairre", *arguments]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Wait until all have ended, and return the processes that ended by themselves, in order.

    Once one has failed, the others are given some time.
    """
    ended: list[int] = []
    deadline = None
    while len(ended) < len(processes):
        ended += [r for r, process in enumerate(processes) if r not in ended and process.poll() is not None]
        if deadline is None and any(processes[rank].returncode for rank in ended):
            deadline = time.monotonic() + _GRACE
        if deadline is not None and time.monotonic() > deadline:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()
            break
        time.sleep(_PAUSE)
    return ended


@contextmanager
def _forwarded_signals() -> Iterator[tuple[list[subprocess.Popen[bytes]], list[int]]]:
    """Pass SIGINT and SIGTERM on to the processes in a list; yield that list, and one of the signals that came."""
    processes: list[subprocess.Popen[bytes]] = []
    received: list[int] = []

    def forward(signum: int, _: object) -> None:
        received.append(signum)
        for process in processes:
            if process.poll() is None:
                process.send_signal(signum)

    previous = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield processes, received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for process in processes:
            process.kill()
