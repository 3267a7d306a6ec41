"""A server of tools for agents, over standard input and output, or over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from pairre.runs import RunFolder
from pairre.serve.http.security import Access, SecurityMiddleware
from pairre.serve.http.server import address_of, run_server, take_port
from pairre.serve.local import LocalEngine
from pairre.serve.mcp.tools import build_server
from pairre.serve.state import RunState

PATH = "/mcp"
_RUN = "run"  # the name of the one run, which no agent sees
_MAX_BODY, _MAX_SESSIONS = 1 << 20, 64
Say = Callable[[str], None]


@dataclass(frozen=True)
class HttpOptions:
    """Where a server over HTTP listens, and whom it answers."""

    host: str = "127.0.0.1"
    port: int = 8001
    token: str | None = None
    hosts: tuple[str, ...] = ()


def serve_stdio(path: Path, device: str, verify: bool, say: Say) -> None:
    """Serve the tools of a run to the program that started this one, until it closes standard input."""
    RunFolder.open(path)  # a wrong path is said before a client waits for an answer
    asyncio.run(_serve_stdio(_engine(path, device, verify, say)))


async def _serve_stdio(engine: LocalEngine) -> None:
    starting = asyncio.create_task(engine.start())  # a client need not wait for it to list the tools
    server = build_server(engine, _RUN, lambda: asyncio.shield(starting))
    try:
        await server.run_stdio_async()
    finally:
        await asyncio.gather(starting, return_exceptions=True)
        await engine.stop()
    if not starting.cancelled() and (error := starting.exception()):
        raise error


def serve_http(path: Path, options: HttpOptions, device: str, verify: bool, say: Say, announce: Say) -> None:
    """Serve the tools of a run over HTTP until a signal says to stop."""
    RunFolder.open(path)
    access = Access.of(options.host, options.token, (), options.hosts)
    listening = take_port(options.host, options.port)
    engine = _engine(path, device, verify, say)
    address = f"{address_of(listening).rstrip('/')}{PATH}"
    run_server(http_app(engine, access), engine, listening, lambda: announce(address), lifespan="on")


def http_app(engine: LocalEngine, access: Access) -> ASGIApp:
    """Return the application of a server over HTTP: the tools, and who may use them."""

    async def opened() -> None:
        """Return at once: such a server listens when the run is open."""

    server = build_server(engine, _RUN, opened)
    app: Any = server.streamable_http_app(
        streamable_http_path=PATH,
        host=access.host,
        max_request_body_size=_MAX_BODY,
        max_sessions=_MAX_SESSIONS,
        transport_security=_hosts_are_checked_elsewhere(),
    )
    return SecurityMiddleware(app, access, (PATH,))


def _hosts_are_checked_elsewhere() -> Any:
    """Return settings without checks of host names, which `SecurityMiddleware` does for all servers."""
    from mcp.server.transport_security import TransportSecuritySettings

    return TransportSecuritySettings(enable_dns_rebinding_protection=False)


def _engine(path: Path, device: str, verify: bool, say: Say) -> LocalEngine:
    """Return an engine that opens the run in this process; nothing is prepared in the background."""

    def open_states() -> list[RunState]:
        return [RunState.open(_RUN, path, device, verify=verify, mapped=True, notify=say)]

    return LocalEngine(open_states, prepares=False)
