"""The application: routes, errors as JSON, and the layers around them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from pairre.serve.contract import Engine, ServeError
from pairre.serve.http import routes
from pairre.serve.http.limits import Limits, LimitsMiddleware
from pairre.serve.http.metrics import MetricsMiddleware, ServerMetrics
from pairre.serve.http.quick import QuickPredict
from pairre.serve.http.replies import JSONReply, error_reply
from pairre.serve.http.security import Access, SecurityMiddleware
from pairre.serve.http.static import static_files
from pairre.serve.reviews import Reviews
from pairre.support.errors import PairREError
from pairre.support.reading import shortened
from pairre.support.text import visible
from pairre.support.version import __version__

log = logging.getLogger("pairre")
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}
_DESCRIPTION = (
    "Missing links of knowledge graphs: known facts, likely ones with probabilities and reasons. Names of entities and "
    "relations are query parameters or JSON, never parts of a path, and may contain any character. An answer that "
    "needs time says 503 with Retry-After."
)


@dataclass(eq=False)
class Service:
    """What the routes work with."""

    engine: Engine
    runs: list[str]  # names; the first is the default
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    reviews: Mapping[str, Reviews] = field(default_factory=dict)  # by run; one that has none stores no verdicts
    metrics: ServerMetrics = field(default_factory=ServerMetrics)


def build_app(service: Service) -> ASGIApp:
    """Return the application of a service; the engine is started and stopped by whoever runs it.

    The layers stand around FastAPI rather than in it, so that a plain query passes nothing that it does not need.
    """
    app: ASGIApp = QuickPredict(build_routes(service), service.engine, service.runs, _refused)
    app = LimitsMiddleware(app, service.limits)
    app = SecurityMiddleware(app, service.access)
    app = MetricsMiddleware(app, service.metrics)
    if not service.access.origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(service.access.origins),
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type"],
        expose_headers=["retry-after"],
    )


def build_routes(service: Service) -> FastAPI:
    """Return the routes of a service, which also describe themselves as OpenAPI."""
    app = FastAPI(
        title="pairre",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        default_response_class=JSONReply,
        redirect_slashes=False,
    )
    service.metrics.watch(service.engine.numbers)
    app.state.service, app.state.files = service, static_files()
    app.include_router(routes.pages)
    app.include_router(routes.api)
    app.include_router(routes.reviews)
    app.add_exception_handler(ServeError, _refused)
    app.add_exception_handler(PairREError, _failed)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _broken)
    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ServeError)
    message = shortened(visible(str(error)), 500)
    suggestions = [shortened(name, 500) for name in error.suggestions]
    return error_reply(error.status, error.code, message, suggestions, error.retry_after)


async def _failed(_: Request, error: Exception) -> Response:
    return error_reply(400, "bad_request", shortened(visible(str(error)), 500))


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    parts = []
    for fault in error.errors()[:3]:
        place = " ".join(str(part) for part in fault["loc"] if part != "query")
        parts.append(f"{place}: {fault['msg']}")
    return error_reply(422, "invalid", shortened(visible("; ".join(parts)), 500))


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "bad_request")
    return error_reply(error.status_code, code, str(error.detail), headers=error.headers)


async def _broken(_: Request, error: Exception) -> Response:
    log.error("a request failed: %s", type(error).__name__)
    return error_reply(500, "internal", "a fault of the server; its log says more")
