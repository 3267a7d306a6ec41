"""What a client may ask for at once, and what it is told beyond that."""

import asyncio

import pytest

from pairre.serve.contract import EngineBusyError
from pairre.serve.http.limits import Limits, LimitsMiddleware, RateLimiter
from serve.conftest import served


def test_a_bucket_fills_with_time():
    limiter = RateLimiter(rate=2.0, burst=3.0)
    assert [limiter.wait("a", 0.0) for _ in range(3)] == [0.0] * 3
    assert limiter.wait("a", 0.0) == pytest.approx(0.5)
    assert limiter.wait("b", 0.0) == 0.0  # others are not kept waiting
    assert limiter.wait("a", 0.5) == 0.0
    assert limiter.wait("a", 0.5) == pytest.approx(0.5)
    assert [limiter.wait("a", 100.0) for _ in range(4)][-1] > 0  # not more than a burst is saved up


def test_no_rate_is_no_limit():
    limiter = RateLimiter(rate=0.0, burst=0.0)
    assert {limiter.wait("a", 0.0) for _ in range(1000)} == {0.0}


def test_the_memory_for_clients_is_bounded():
    limiter = RateLimiter(rate=1.0, burst=1.0)
    for number in range(10_000):
        limiter.wait(str(number), 0.0)
    assert len(limiter._buckets) <= 4096


def test_too_many_requests_are_told_when_to_try_again(atlas_run):
    with served({"atlas": atlas_run}, limits=Limits(rate=0.5, burst=2), prepares=False) as found:
        answers = [found.client.get("/api/v1/runs/atlas/search", params={"q": "a"}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 2
        assert answers[-1].json()["error"]["code"] == "too_many_requests"
        assert found.client.get("/health").status_code == 200  # probes are not counted


def test_a_large_body_is_refused_before_it_is_read(atlas_run):
    with served({"atlas": atlas_run}, limits=Limits(max_body=1000), prepares=False) as found:
        path, read = "/api/v1/runs/atlas/score", []

        def parts():
            for _ in range(100):
                read.append(1)
                yield b" " * 100

        assert found.client.post(path, content=b" " * 1001).status_code == 413
        chunked = found.client.post(path, content=parts(), headers={"content-type": "application/json"})
        assert chunked.status_code == 413
        assert chunked.json()["error"]["code"] == "too_large"
        wrong = found.client.post(path, content=b"{}", headers={"content-length": "-1"})
        assert wrong.status_code == 413


async def exchange(app, messages, method="POST", headers=()):
    """Send a request to an ASGI application; return the status."""
    queue, sent = list(messages), []

    async def receive():
        if not queue:
            await asyncio.sleep(3600)
        return queue.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": "/api/x", "headers": list(headers), "client": ("a", 1)}
    await app(scope, receive, send)
    return sent[0]["status"]


async def answered(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_a_body_that_does_not_arrive_is_given_up():
    layer = LimitsMiddleware(answered, Limits(body_seconds=0.05))
    part = {"type": "http.request", "body": b"{", "more_body": True}
    assert asyncio.run(exchange(layer, [part])) == 408
    whole = {"type": "http.request", "body": b"{}", "more_body": False}
    assert asyncio.run(exchange(layer, [part, whole])) == 200


def test_too_much_at_the_same_time_is_refused_at_once():
    async def scenario():
        gate = asyncio.Event()

        async def slow(scope, receive, send):
            await gate.wait()
            await answered(scope, receive, send)

        layer = LimitsMiddleware(slow, Limits(max_concurrent=2))
        whole = {"type": "http.request", "body": b"{}", "more_body": False}
        first = [asyncio.create_task(exchange(layer, [whole])) for _ in range(2)]
        await asyncio.sleep(0)
        refused = await exchange(layer, [whole])
        gate.set()
        return refused, await asyncio.gather(*first), await exchange(layer, [whole])

    assert asyncio.run(scenario()) == (503, [200, 200], 200)


def test_a_full_engine_is_a_503(atlas_run, monkeypatch):
    with served({"atlas": atlas_run}, prepares=False) as found:

        async def full(*_):
            raise EngineBusyError("full", retry_after=2.2)

        monkeypatch.setattr(found.engine, "_computed", full)
        response = found.client.get("/api/v1/runs/atlas/similar", params={"name": "Peru"})
        assert (response.status_code, response.headers["retry-after"]) == (503, "3")
        assert response.json()["error"]["code"] == "busy"


def test_a_server_that_starts_or_stops_is_not_ready(atlas_run):
    with served({"atlas": atlas_run}, prepares=False) as found:
        asyncio.run(found.engine.stop())
        response = found.client.get("/ready")
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert found.client.get("/health").status_code == 200
        assert found.client.get("/api/v1/runs").status_code == 503
