"""The process that listens: a port that is taken at once, runs that are opened with a word, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from pairre.serve.contract import Engine
from pairre.serve.http.connection import BoundedConnection
from pairre.support.errors import PairREError
from pairre.support.text import visible

_SECONDS_TO_FINISH = 10  # requests that are worked on when the server is told to stop
_MAX_CONNECTIONS = 2048  # and as many tasks, among which uvicorn counts those that have just ended
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def take_port(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to a port, or raise a PairREError that says why that is not possible."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PairREError(f"--host {visible(host)}: not an address of this machine ({reason})") from error
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PairREError(f"--port {port}: another program listens there; choose another, or 0 for any") from error
        raise PairREError(f"--host {visible(host)} --port {port}: {error.strerror or error}") from error
    return listening


def address_of(listening: socket.socket) -> str:
    """Return the URL of a server that listens on a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


class _Server(uvicorn.Server):
    """A server whose signals `run_server` handles, so that an orderly end has the exit code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signal."""
        yield


def run_server(
    app: ASGIApp,
    engine: Engine,
    listening: socket.socket,
    started: Callable[[], None],
    lifespan: Literal["off", "on"] = "off",
) -> None:
    """Start an engine, serve an application until SIGTERM or SIGINT, and stop; `started` is called in between.

    `lifespan` says whether the application has something to start and to stop by itself.
    """
    config = uvicorn.Config(
        app,
        http=BoundedConnection,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan=lifespan,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=_SECONDS_TO_FINISH,
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_serve(_Server(config), engine, listening, started))


async def _serve(server: _Server, engine: Engine, listening: socket.socket, started: Callable[[], None]) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        server.force_exit = stopping.is_set()  # a second signal does not wait for requests
        server.should_exit = True
        stopping.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    stopped = asyncio.create_task(stopping.wait())
    try:
        starting = asyncio.create_task(engine.start())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.is_set():
            await starting
            serving = asyncio.create_task(server.serve([listening]))
            while not server.started and not serving.done():
                await asyncio.sleep(0.005)
            started()
            await serving
        elif not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
    finally:
        stopped.cancel()
        await engine.stop()
        listening.close()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
