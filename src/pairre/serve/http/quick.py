"""The most frequent request, answered without the machinery of routes: GET …/predict with plain parameters.

Whatever is unusual about a request goes on to the route, which documents it, checks it, and says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_plus

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pairre.serve.bounds import MAX_K, MAX_NAME
from pairre.serve.contract import Engine, ServeError

_BEGIN, _END = "/api/v1/runs/", "/predict"
_NAMES = frozenset({"head", "relation", "tail", "type"})
_FLAGS = frozenset({"known", "any"})
_TRUTH = {"true": True, "false": False}
_SHORT = 64  # characters of a value that is remembered
_JSON = (b"content-type", b"application/json")
Refuse = Callable[[Any, ServeError], Awaitable[Response]]  # what the application makes of an error


class QuickPredict:
    """Answers queries with plain parameters; `refuse` makes the reply of an error."""

    def __init__(self, app: ASGIApp, engine: Engine, runs: Sequence[str], refuse: Refuse) -> None:
        self._app, self._engine, self._refuse = app, engine, refuse
        self._runs = {f"{_BEGIN}{run}{_END}": run for run in runs}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        run = self._runs.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
        arguments = None if run is None else plain_arguments(scope["query_string"])
        if run is None or arguments is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = _Route  # for the metrics
        try:
            body = await self._engine.call_json(run, "predict", arguments)
        except ServeError as error:
            reply = await self._refuse(None, error)
            await reply(scope, receive, send)
            return
        headers = [_JSON, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class _Route:
    """What the metrics call such a request."""

    path = f"{_BEGIN}{{run}}{_END}"


_unquoted = lru_cache(1 << 14)(unquote_plus)  # the names of entities come again and again


def plain_arguments(query: bytes) -> dict[str, Any] | None:
    """Return the arguments of a query string, or None unless each is known, occurs once, and is within its bounds."""
    found: dict[str, Any] = {}
    for part in query.decode("latin-1").split("&"):
        name, _, value = part.partition("=")
        if name in found or not value:
            return None
        if "%" in value or "+" in value:
            value = _unquoted(value) if len(value) <= _SHORT else unquote_plus(value)
        if name in _NAMES:
            found[name] = value
            if len(value) > MAX_NAME:
                return None
        elif name in _FLAGS and value in _TRUTH:
            found[name] = _TRUTH[value]
        elif name == "k" and value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= MAX_K:
            found[name] = int(value)
        else:
            return None
    return found
