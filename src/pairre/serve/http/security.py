"""Who is answered, and what a browser may do with an answer: host names, tokens, origins, headers."""

from __future__ import annotations

import hmac
import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pairre.serve.http.replies import error_reply
from pairre.support.errors import PairREError
from pairre.support.reading import shortened
from pairre.support.text import visible

TOKEN_VARIABLE = "PAIRRE_TOKEN"
MIN_TOKEN = 16  # characters
_MAX_HOSTS = 64  # Host headers that are remembered
PROTECTED = ("/api", "/metrics")  # how the paths begin that need a token, where there is one
_CONTENT_SECURITY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _CONTENT_SECURITY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class Access:
    """Who is answered."""

    host: str = "127.0.0.1"
    token: str | None = None
    origins: tuple[str, ...] = ()  # of other sites whose pages may read answers
    hosts: tuple[str, ...] = ()  # more names under which this server is asked for, such as that of a proxy

    @classmethod
    def of(
        cls,
        host: str,
        token: str | None,
        origins: Sequence[str] = (),
        hosts: Sequence[str] = (),
        environment: Mapping[str, str] = os.environ,
    ) -> Access:
        """Return who is answered, or raise a PairREError if that is not safe or makes no sense."""
        token = token if token is not None else environment.get(TOKEN_VARIABLE) or None
        if token is None and not is_loopback(host):
            raise PairREError(
                f"--host {visible(host)}: other machines could ask; set a token of {MIN_TOKEN} or more characters in "
                f"{TOKEN_VARIABLE} or with --token, which clients then send"
            )
        if token is not None and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
            raise PairREError(
                f"token: {MIN_TOKEN} or more printable ASCII characters expected; python -c "
                "'import secrets; print(secrets.token_urlsafe(32))' makes one"
            )
        return cls(host, token, tuple(map(_origin, origins)), tuple(name.lower() for name in hosts))


def _origin(text: str) -> str:
    """Return an origin as browsers write it."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/") or "*" in text:
        raise PairREError(f"--allow-origin {visible(shortened(text))}: expected one such as https://example.org")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_of(header: str) -> str:
    """Return the name in a Host header, without its port."""
    name = header.rsplit(":", 1)[0] if not header.endswith("]") and ":" in header else header
    return name.strip("[]").lower()


class SecurityMiddleware:
    """Refuse foreign host names, missing tokens and pages of other sites; add the headers that bind a browser."""

    def __init__(self, app: ASGIApp, access: Access, protected: tuple[str, ...] = PROTECTED) -> None:
        self._app, self._access, self._protected = app, access, protected
        self._token = None if access.token is None else f"Bearer {access.token}".encode()
        self._is_served = lru_cache(_MAX_HOSTS)(self._serves)
        self._headers = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
        if not access.origins:
            self._headers.append((b"cross-origin-resource-policy", b"same-origin"))
        self._headers_of_answers = [*self._headers, (b"cache-control", b"no-store")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        more = self._headers_of_answers if scope["path"].startswith(PROTECTED) else self._headers

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in more if pair[0] not in given)]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send_safely)
        else:
            status, code, text = refusal
            challenge = {"www-authenticate": "Bearer"} if status == 401 else {}
            await error_reply(status, code, text, headers=challenge)(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        """Return status, code and message of why a request is refused, or None."""
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            return 400, "bad_host", "one Host header expected"
        if not self._is_served(hosts[0]):
            return 400, "bad_host", "this host name is not served; --allow-host serves more names"
        method = scope["method"]
        if self._token is not None and scope["path"].startswith(self._protected) and method != "OPTIONS":
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not hmac.compare_digest(given, self._token):
                return 401, "no_token", "a token is required: send the header Authorization: Bearer TOKEN"
        if method not in ("GET", "HEAD", "OPTIONS") and not self._same_origin(scope):
            return 403, "foreign_origin", "pages of other sites may not change anything here"
        return None

    def _serves(self, header: bytes) -> bool:
        """Return whether this server answers under the name of a Host header."""
        name = host_of(header.decode("latin-1"))
        return not is_loopback(self._access.host) or is_loopback(name) or name in self._access.hosts

    def _same_origin(self, scope: Scope) -> bool:
        """Return whether a request is from a page of this server, of an allowed origin, or from no browser."""
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site", "none") in ("same-origin", "none")
        return urlsplit(origin).netloc.lower() == headers["host"].lower() or origin.lower() in self._access.origins
