"""A connection of a client, closed when a head is too large or takes too long, or nobody takes the answers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 1 << 16  # bytes of the line and the headers of a request; those of its body are bounded in `limits.py`
HEAD_SECONDS = 10.0  # within which they must have arrived, and the rest of a body that was answered before
TAKE_SECONDS = 60.0  # within which a client must take what was written to it


class _Whole:
    """The transport of a connection; the head and the body of an answer, written separately, leave as one.

    Each write would be a call of the system, and the client would wake up for either.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self._parts = transport, loop, list[bytes]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write bytes when the current task waits for something."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Write what is left, and close the connection."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            self._transport.write(b"".join(parts))


class BoundedConnection(HttpToolsProtocol):
    """A connection of uvicorn, which by itself waits for a head for ever and keeps one of any size."""

    _timer: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _size = 0
    _in_body = False

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(cast(asyncio.Transport, _Whole(transport, self.loop)))
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_waiting()
        self._stop_taking()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to take what was written, but not for ever: a request may be waiting to answer."""
        super().pause_writing()
        self._taking = self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Write on."""
        self._stop_taking()
        super().resume_writing()

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request, and close the connection if its head has too many."""
        if not self._in_body:
            # Bytes of a body that came with the head count, too, but only until the head is complete.
            self._size += len(data)
        super().data_received(data)
        if not self._in_body and self._size > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The head of a request has at most {MAX_HEAD:,} bytes.")

    def on_message_begin(self) -> None:
        """Wait for the rest of the head."""
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        """Pass the request on."""
        self._stop_waiting()
        self._in_body, self._size = True, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Take the next head."""
        self._stop_waiting()
        super().on_message_complete()
        self._in_body = False

    def on_response_complete(self) -> None:
        """Wait for the rest of a body that nobody reads."""
        super().on_response_complete()
        if self._in_body:
            self._wait()

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self._timer = None
        if self.cycle is not None and not self.cycle.response_complete:  # of the request before
            self._wait()
        elif not self.transport.is_closing():
            self.transport.close()
