"""A scorer process as the server sees it: started with a socket, spoken to in frames, gone when the socket closes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from typing import Any, BinaryIO, Protocol

from pairre.serve.wire import Frame, FrameReader

_SECONDS_TO_END = 2.0  # after which a process that was told to end is killed


class Listener(Protocol):
    """Who hears of a process."""

    def received(self, process: ScorerProcess, frame: Frame) -> None:
        """Take a message."""

    def lost(self, process: ScorerProcess) -> None:
        """Take notice that the process ended."""


class ScorerProcess(asyncio.Protocol):
    """One process and the socket to it."""

    def __init__(self, listener: Listener, place: int) -> None:
        self.place = place  # among all processes of the engine
        self.ready = False
        self._listener, self._reader = listener, FrameReader()
        self._transport: asyncio.Transport | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self.ended = asyncio.Event()
        self.opened: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()  # what it says of runs

    @property
    def pid(self) -> int | None:
        """The number of the process, None until it was started."""
        return None if self._child is None else self._child.pid

    async def start(self, rows: BinaryIO) -> None:
        """Start the process, with the file of prepared rows open in it."""
        ours, theirs = socket.socketpair()
        files = theirs.fileno(), rows.fileno()
        command = [sys.executable, "-P", "-m", "pairre.serve.worker", *map(str, files)]
        try:
            with theirs:
                # What a library prints must not come between the lines of a tool that speaks over standard output.
                self._child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=sys.__stderr__, pass_fds=files, env=_environment()
                )
            ours.setblocking(False)
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=ours)
        except OSError:
            ours.close()
            self.kill()
            self.ended.set()
            raise

    def send(self, data: bytes) -> None:
        """Send a message; to a process that is ending, nothing is sent."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def kill(self) -> None:
        """End the process at once; whoever listens hears of it."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()

    async def stop(self) -> None:
        """Have the process end, which it does when the socket closes, and wait for that."""
        if self._transport is not None:
            self._transport.close()
        await self.reap()

    async def reap(self) -> None:
        """Wait until the process has ended; one that takes long is killed."""
        if self._child is None:
            return
        try:
            await asyncio.to_thread(self._child.wait, _SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.kill()
            await asyncio.to_thread(self._child.wait)

    # --- what asyncio calls ---

    def connection_made(self, transport: Any) -> None:
        """Keep the socket."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass on the messages that are whole."""
        try:
            for frame in self._reader.feed(data):
                self._listener.received(self, frame)
        except ValueError:  # a process that writes anything else is not to be trusted
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Take notice that the process ended."""
        self.ready = False
        self.ended.set()
        self._listener.lost(self)


def _environment() -> dict[str, str]:
    """Return the environment of a process: idle threads of torch do not take the cores from the others."""
    return {**os.environ, "OMP_WAIT_POLICY": "passive"}
