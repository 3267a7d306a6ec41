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
_NO_BODY = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})  # none is read
_LIMITED = "/api/"  # paths that compute


@dataclass(frozen=True)
class Limits:
    """What a client may ask for at once; 0 for no limit of the rate."""

    max_body: int = 1 << 20  # bytes
    rate: float = 100.0  # requests a second of one client
    burst: float = 200.0  # requests that a client may send at once
    max_concurrent: int = 64  # requests that are worked on together
    max_arriving: int = 64 << 20  # bytes of all requests that are not complete
    body_seconds: float = 5.0  # for a body, and as much more as what has arrived would take at the lowest rate
    body_rate: float = 64e3  # bytes a second


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
    """Refuse what is beyond the limits: 413 for its size, 429 for the rate, 503 for too much at the same time.

    A request counts as worked on from when it has arrived until its answer begins, so that nobody is kept from an
    answer by clients that send, or read, slowly.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._rates, self._working, self._arriving = RateLimiter(limits.rate, limits.burst), 0, 0

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
        if await self._is_full(scope, receive, send):  # before a body is read
            return
        if scope["method"] not in _NO_BODY:
            try:
                receive = _replayed(await self._body(scope, receive), receive)
            except _Refused as refused:
                await refused.reply(scope, receive, send)
                return
            if await self._is_full(scope, receive, send):
                return
        await self._work(scope, receive, send)

    async def _is_full(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Refuse a request if too many are worked on, and return whether that was so."""
        if self._working < self._limits.max_concurrent:
            return False
        message = f"{self._working} requests are being worked on; try again"
        await asyncio.sleep(_PAUSE)
        await error_reply(503, "busy", message, retry_after=1)(scope, receive, send)
        return True

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, which counts until its answer begins."""
        is_working = True
        self._working += 1

        def done() -> None:
            nonlocal is_working
            self._working -= is_working
            is_working = False

        async def send_noted(message: Message) -> None:
            done()
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            done()

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body of a request, or raise _Refused."""
        limits, loop = self._limits, asyncio.get_running_loop()
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > limits.max_body:
            raise _too_large(limits)
        parts, size, start = list[bytes](), 0, loop.time()
        try:
            async with asyncio.timeout(limits.body_seconds) as patience:
                while True:
                    message = await receive()
                    parts.append(message.get("body", b""))
                    size, self._arriving = size + len(parts[-1]), self._arriving + len(parts[-1])
                    if size > limits.max_body:
                        raise _too_large(limits)
                    if message["type"] == "http.disconnect" or not message.get("more_body"):
                        return b"".join(parts)
                    if self._arriving > limits.max_arriving:
                        raise _Refused(503, "busy", "too many requests arrive together; try again", retry_after=1)
                    patience.reschedule(start + limits.body_seconds + size / limits.body_rate)
        except TimeoutError:
            raise _Refused(408, "too_slow", "the request arrived too slowly") from None
        finally:
            self._arriving -= size


class _Refused(Exception):  # noqa: N818 — a reply
    """The reply to a request whose body is not read to its end, and whose connection is closed."""

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reply = error_reply(status, code, message, (), retry_after, {"connection": "close"})


def _too_large(limits: Limits) -> _Refused:
    return _Refused(413, "too_large", f"a request has at most {limits.max_body:,} bytes")


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
