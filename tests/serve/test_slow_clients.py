"""Clients that send, or read, as slowly as they can, over real sockets: others are answered meanwhile."""

import asyncio
import json
import time

from pairre.serve.http import connection
from pairre.serve.http.limits import Limits, LimitsMiddleware
from serve.sockets import listening

GET = b"GET /api/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /api/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
LIMITS = Limits(rate=0, max_concurrent=4, body_seconds=0.4, body_rate=1000)
LARGE = b"x" * (16 << 20)  # more than sockets hold


async def answers(scope, receive, send):
    """Answer with the length of the body; `/api/large` with more than a socket holds."""
    size = len((await receive())["body"]) if scope["method"] == "POST" else 0
    body = LARGE if scope["path"] == "/api/large" else json.dumps(size).encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]},
    )
    await send({"type": "http.response.body", "body": body})


async def opened(address, data):
    """Connect and send the begin of a request."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    return reader, writer


async def status_of(reader):
    """Return the status of the next answer."""
    line = await asyncio.wait_for(reader.readline(), 10)
    return int(line.split()[1])


def test_clients_that_send_byte_by_byte_hold_no_place_and_are_sent_away():
    async def scenario():
        async with listening(LimitsMiddleware(answers, LIMITS)) as address:
            slow = [await opened(address, POST % 1000) for _ in range(50)]
            statuses, started = [], time.monotonic()
            for _ in range(3):  # as long as these are patient
                for _, writer in slow:
                    writer.write(b"x")
                reader, writer = await opened(address, GET + POST % 3 + b"abc")
                statuses.append(await status_of(reader))
                writer.close()
                await asyncio.sleep(0.02)
            busy = time.monotonic() - started
            refused = {await status_of(reader) for reader, _ in slow}
            for _, writer in slow:
                writer.close()
            return statuses, refused, busy, time.monotonic() - started

    statuses, refused, busy, seconds = asyncio.run(scenario())
    assert statuses == [200] * 3
    assert busy < LIMITS.body_seconds
    assert refused == {408}
    assert seconds < 5


def test_a_body_that_takes_longer_but_goes_on_is_read():
    async def scenario():
        async with listening(LimitsMiddleware(answers, LIMITS)) as address:
            reader, writer = await opened(address, POST % 1500)
            for _ in range(5):  # 0.75 seconds for 1,500 bytes: 0.4, and more for what has arrived
                await asyncio.sleep(0.15)
                writer.write(b"x" * 300)
            found = await asyncio.wait_for(reader.readuntil(b"1500"), 10)
            writer.close()
            return found

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 200 ")


def test_what_arrives_together_is_bounded():
    async def scenario():
        limits = Limits(rate=0, max_body=1000, max_arriving=2500, body_seconds=0.4)
        async with listening(LimitsMiddleware(answers, limits)) as address:
            held = [await opened(address, POST % 1000 + b"x" * 900) for _ in range(3)]
            refused = {await status_of(held[-1][0])}
            reader, writer = await opened(address, POST % 3 + b"abc")
            small = await status_of(reader)
            late = {await status_of(reader) for reader, _ in held[:-1]}
            reader, last = await opened(address, POST % 1000 + b"x" * 1000)  # there is room again
            after = await status_of(reader)
            for one in (*(writer for _, writer in held), writer, last):
                one.close()
            return refused, small, late, after

    assert asyncio.run(scenario()) == ({503}, 200, {408}, 200)


def test_clients_that_read_nothing_hold_no_place_and_are_cut_off(monkeypatch):
    monkeypatch.setattr(connection, "TAKE_SECONDS", 0.4)
    large = GET.replace(b"/api/x", b"/api/large")

    async def scenario():
        async with listening(LimitsMiddleware(answers, LIMITS)) as address:
            deaf = [await opened(address, large * 2) for _ in range(8)]  # the second answer waits for the first
            await asyncio.sleep(0.1)
            reader, writer = await opened(address, GET)
            status = await status_of(reader)
            writer.close()
            await asyncio.sleep(0.6)
            sizes = []
            for reader, writer in deaf:
                try:
                    sizes.append(len(await asyncio.wait_for(reader.read(), 10)))
                except ConnectionError:
                    sizes.append(0)
                writer.close()
            return status, sizes

    status, sizes = asyncio.run(scenario())
    assert status == 200
    assert max(sizes) < len(LARGE)


def test_the_head_and_the_body_of_an_answer_leave_together():
    async def scenario():
        async with listening(LimitsMiddleware(answers, LIMITS)) as address:
            reader, writer = await opened(address, GET)
            found = await asyncio.wait_for(reader.read(1 << 16), 10)
            writer.close()
            return found

    assert asyncio.run(scenario()).endswith(b"\r\n\r\n0")
