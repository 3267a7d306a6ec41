"""Metrics of the server in the format of Prometheus: requests by route and status, their time, what is worked on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pairre.support.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class ServerMetrics:
    """The metrics of one server; other parts may add theirs to the registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("pairre_requests", "Requests answered.", ("route", "status"), registry=self.registry)
        self.seconds = Histogram(
            "pairre_request_seconds", "Time to answer a request.", ("route",), registry=self.registry, buckets=_BUCKETS
        )
        self.working = Gauge("pairre_requests_in_progress", "Requests being worked on.", registry=self.registry)
        info = Gauge("pairre_info", "The version that runs.", ("version",), registry=self.registry)
        info.labels(__version__).set(1)

    def watch(self, numbers: Callable[[], Mapping[str, int]]) -> None:
        """Also show the counts that an engine gives when it is asked."""
        self.registry.register(_EngineCounts(numbers))

    def text(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        return generate_latest(self.registry)


class _EngineCounts(Collector):
    """The counts of an engine, as they are at the time."""

    def __init__(self, numbers: Callable[[], Mapping[str, int]]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield each count."""
        for name, value in self._numbers().items():
            yield GaugeMetricFamily(f"pairre_engine_{name}", f"The engine's count of {name.replace('_', ' ')}.", value)


class MetricsMiddleware:
    """Count requests and measure their time; the path of a route counts, never a name of a request."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics) -> None:
        self._app, self._metrics, self._of = app, metrics, lru_cache(self._labelled)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, start = 500, time.perf_counter()

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._metrics.working.inc()
        try:
            await self._app(scope, receive, send_noted)
        finally:
            count, seconds = self._of(getattr(scope.get("route"), "path", "other"), status)
            self._metrics.working.dec()
            count.inc()
            seconds.observe(time.perf_counter() - start)

    def _labelled(self, route: str, status: int) -> tuple[Counter, Histogram]:
        """Return the metrics of a route; there are few, but looking one up takes longer than to count."""
        return self._metrics.requests.labels(route, str(status)), self._metrics.seconds.labels(route)
