"""Connections of clients that send too much, or slowly: closed, while others are answered."""

import asyncio

import pytest

from pairre.serve.http import connection
from serve.sockets import listening

OK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def answers(scope, receive, send):
    """Answer at once, without reading a body."""
    await asyncio.sleep(0.3 if scope["path"] == "/slow" else 0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def sent(monkeypatch):
    """A function that sends pieces of bytes over one connection, and returns what comes until it is closed."""
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.15)

    async def run(pieces, pause=0.05):
        async with listening(answers) as address:
            reader, writer = await asyncio.open_connection(*address)
            reading = asyncio.create_task(reader.read())
            for piece in pieces:
                if reading.done() or writer.is_closing():
                    break
                writer.write(piece)
                await asyncio.sleep(pause)
            found = (await asyncio.gather(asyncio.wait_for(reading, 10), return_exceptions=True))[0]
            writer.close()
            return found

    return lambda *arguments, **options: asyncio.run(run(*arguments, **options))


def test_requests_are_answered_one_after_the_other(sent):
    assert sent([OK, OK, OK[:10], OK[10:]]).count(b"200 OK") == 3
    assert sent([OK * 3]).count(b"200 OK") == 3


def test_a_head_that_does_not_end_is_not_waited_for(sent):
    found = sent([b"GET / HTTP/1.1\r\n", *[b"X-A: b\r\n"] * 20])
    assert found == b"" or isinstance(found, ConnectionError)  # bytes that come after the end
    assert sent([OK, b"GET / HT"]).count(b"200 OK") == 1
    assert sent([]) == b""


def test_a_head_that_is_too_large_is_refused(sent):
    found = sent([b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * connection.MAX_HEAD], pause=0)
    assert found.startswith(b"HTTP/1.1 400 ")
    found = sent([b"GET /" + b"a" * 3000, *[b"a" * 3000] * 30], pause=0)
    assert isinstance(found, ConnectionError) or found.startswith(b"HTTP/1.1 400 ")


def test_a_large_body_is_no_head(sent):
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n"
    assert sent([head, b"a" * 100_000, b"a" * 100_000, OK]).count(b"200 OK") == 2


def test_a_body_that_does_not_end_after_its_answer_is_not_waited_for(sent):
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200\r\n\r\n"
    assert sent([head, *[b"a"] * 100]).count(b"200 OK") == 1


def test_an_answer_is_not_cut_short_by_the_next_head(sent):
    slow = OK.replace(b"/ ", b"/slow ")
    assert b"200 OK" in sent([slow, b"GET / HT"])
