"""What a client may ask for at once: bytes of a request, requests a second, and how many are worked on together.

Whoever asks for more is told so, with the time after which to try again, so that memory stays bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pairre.serve.http.replies import error_reply

_MAX_CLIENTS = 4096  # whose rates are remembered
_PAUSE = 0.2  # seconds before a refusal: whoever asks again at once would take the time of the others
_LIMITED = "/api/"  # paths that compute


@dataclass(frozen=True)
class Limits:
    """What a client may ask for at once; 0 for no limit of the rate."""

    max_body: int = 1 << 20  # bytes
    rate: float = 100.0  # requests a second of one client
    burst: float = 200.0  # requests that a client may send at once
    max_concurrent: int = 64  # requests that are worked on together
    body_seconds: float = 30.0  # within which a request must have arrived


class RateLimiter:
    """Buckets of tokens by client, which fill up with time."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, max(1.0, burst)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client → tokens, when

    def wait(self, client: str, now: float) -> float:
        """Take a token of a client; return 0, or in how many seconds there will be one."""
        if self._rate <= 0:
            return 0.0
        tokens, before = self._buckets.pop(client, (self._burst, now))
        tokens = min(self._burst, tokens + self._rate * (now - before))
        allowed = tokens >= 1
        self._buckets[client] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > _MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / self._rate


class LimitsMiddleware:
    """Refuse what is beyond the limits: 413 for its size, 429 for the rate, 503 for too much at the same time."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._rates, self._working = RateLimiter(limits.rate, limits.burst), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http" or not scope["path"].startswith(_LIMITED):
            await self._app(scope, receive, send)
            return
        client = (scope.get("client") or ("", 0))[0]
        if wait := self._rates.wait(client, time.monotonic()):
            message = f"more than {self._limits.rate:g} requests a second"
            await error_reply(429, "too_many_requests", message, retry_after=wait)(scope, receive, send)
            return
        if self._working >= self._limits.max_concurrent:
            message = f"{self._working} requests are being worked on; try again"
            await asyncio.sleep(_PAUSE)
            await error_reply(503, "busy", message, retry_after=1)(scope, receive, send)
            return
        self._working += 1
        try:
            body = await self._body(scope, receive)
            if isinstance(body, int):
                message = f"a request has at most {self._limits.max_body:,} bytes"
                text = message if body == 413 else f"the request did not arrive within {self._limits.body_seconds:g} s"
                code = "too_large" if body == 413 else "too_slow"
                await error_reply(body, code, text, headers={"connection": "close"})(scope, receive, send)
            else:
                await self._app(scope, _replayed(body, receive), send)
        finally:
            self._working -= 1

    async def _body(self, scope: Scope, receive: Receive) -> bytes | int:
        """Return the body of a request, or the status with which it is refused."""
        if scope["method"] in ("GET", "HEAD", "OPTIONS", "DELETE"):
            return b""  # none is read
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._limits.max_body:
            return 413
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._limits.max_body:
                        return 413
                    if message["type"] == "http.disconnect" or not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            return 408


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a function that gives the body once, and then what comes after it."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
