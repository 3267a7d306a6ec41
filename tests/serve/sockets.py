"""An application behind the connections of the server, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from pairre.serve.http import connection


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[tuple[str, int]]:
    """Serve an application on a port of this machine, and yield its address."""
    config, state = uvicorn.Config(app, log_config=None, timeout_keep_alive=1), ServerState()
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: connection.BoundedConnection(config, state, {}), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()
