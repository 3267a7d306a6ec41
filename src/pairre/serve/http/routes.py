"""The routes: what is asked of the engine by which request; names are parameters, and sizes are bounded."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Path, Query, Request
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from pairre.serve import schemas
from pairre.serve.bounds import (
    MAX_K,
    MAX_LIMIT,
    MAX_NAME,
    MAX_NODES,
    MAX_PAGE,
    MAX_QUERIES,
    MAX_RESULTS,
    MAX_SUPPORT,
    MAX_TRIPLES,
)
from pairre.serve.contract import unknown_run
from pairre.serve.http.examples import ERROR, EXAMPLES
from pairre.serve.http.metrics import CONTENT_TYPE
from pairre.serve.http.replies import JSONReply, error_reply
from pairre.serve.http.static import static_reply
from pairre.serve.reviews import Reviews, ReviewsOffError, Verdict, csv_rows
from pairre.support.version import __version__


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors that a route documents."""
    reasons = {
        400: "The request makes no sense.",
        401: "The server wants a token.",
        403: "The page of another site asks, or no verdicts are stored here.",
        404: "No run, entity or relation has this name.",
        408: "The request did not arrive in time.",
        413: "The request is too large.",
        422: "A parameter is missing, or beyond its bounds.",
        429: "Too many requests a second; try again after `Retry-After` seconds.",
        503: "Busy, or not computed yet; try again after `Retry-After` seconds.",
    }
    content = {"application/json": {"example": ERROR}}
    return {
        status: {"model": schemas.ErrorAnswer, "description": reasons[status], "content": content}
        for status in statuses
    }


_READING = _responses(400, 401, 404, 422, 429, 503)
_POSTING = _responses(400, 401, 403, 404, 408, 413, 422, 429, 503)
# For the description only: `security.py` looks at the token before any route does.
_TOKEN = [Depends(HTTPBearer(auto_error=False, description="The token of the server, if it has one."))]
pages = APIRouter(include_in_schema=True)
api = APIRouter(prefix="/api/v1", tags=["answers"], responses=_READING, dependencies=_TOKEN)
reviews = APIRouter(prefix="/api/v1/runs/{run}/review", tags=["reviews"], responses=_READING, dependencies=_TOKEN)


def _example(name: str) -> dict[int | str, dict[str, Any]]:
    """Return the documented answer of a route."""
    return {200: {"description": "The answer.", "content": {"application/json": {"example": EXAMPLES[name]}}}}


def _run(request: Request, run: Annotated[str, Path(max_length=64, examples=["atlas"])]) -> str:
    """Return the name of a run that is served."""
    names = request.app.state.service.runs
    if run not in names:
        raise unknown_run(run, names)
    return run


Run = Annotated[str, Depends(_run)]
Text = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
OptionalText = Annotated[str | None, Field(max_length=MAX_NAME)]
_ENTITY = {"max_length": MAX_NAME, "examples": ["France"]}
_RELATION = {"max_length": MAX_NAME, "examples": ["borders"]}
Entity = Annotated[str, Query(min_length=1, description="An entity: its name, label or IRI.", **_ENTITY)]
Relation = Annotated[str, Query(min_length=1, description="A relation: its name, label or IRI.", **_RELATION)]
Head = Annotated[str | None, Query(description="The head; leave out what is asked for.", **_ENTITY)]
OfRelation = Annotated[str | None, Query(description="Only links of this relation.", **_RELATION)]
AnyRelation = Annotated[str | None, Query(description="The relation; leave out what is asked for.", **_RELATION)]
Tail = Annotated[str | None, Query(max_length=MAX_NAME, description="The tail; leave out what is asked for.")]
K = Annotated[int, Query(ge=1, le=MAX_K, description="How many answers.")]
Known = Annotated[bool, Query(description="Keep triples that the graph has, marked.")]
Implausible = Annotated[bool, Query(alias="any", description="Keep answers that make no sense for the relation, too.")]
OfType = Annotated[str | None, Query(alias="type", max_length=MAX_NAME, description="Only entities of this type.")]


async def _answer(request: Request, run: str, function: str, **arguments: Any) -> Response:
    body = await request.app.state.service.engine.call_json(run, function, arguments)
    return Response(body, media_type="application/json")


# --- pages and probes ---


@pages.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
async def index(request: Request) -> Response:
    """Return the explorer."""
    return static_reply(request.app.state.files, "index.html", request)


@pages.api_route("/static/{name:path}", methods=["GET", "HEAD"], include_in_schema=False)
async def static(request: Request, name: str) -> Response:
    """Return a file of the explorer."""
    return static_reply(request.app.state.files, name, request)


@pages.get("/health", response_model=schemas.Health, tags=["probes"])
async def health() -> Response:
    """Say that the server lives."""
    return JSONReply({"status": "ok"})


@pages.get("/ready", response_model=schemas.Health, tags=["probes"], responses=_responses(503))
async def ready(request: Request) -> Response:
    """Say whether questions are answered."""
    if request.app.state.service.engine.ready():
        return JSONReply({"status": "ok"})
    return error_reply(503, "starting", "the runs are being opened", retry_after=1)


@pages.get("/metrics", tags=["probes"], response_class=Response, responses=_responses(401))
async def metrics(request: Request) -> Response:
    """Return metrics of the server for Prometheus."""
    return Response(request.app.state.service.metrics.text(), media_type=CONTENT_TYPE)


# --- runs ---


@api.get("/runs", response_model=schemas.Runs, responses=_example("runs"))
async def runs(request: Request) -> Response:
    """List the runs that are served."""
    service = request.app.state.service
    found = [await service.engine.call(run, "summary", {}) for run in service.runs]
    return JSONReply({"runs": found, "default": service.runs[0], "version": __version__})


@api.get("/runs/{run}", response_model=schemas.Landing, responses=_example("landing"))
async def landing(request: Request, run: Run) -> Response:
    """Describe a graph: sizes, sample entities, best and worst relations, questions to try."""
    return await _answer(request, run, "landing")


@api.get("/runs/{run}/search", response_model=schemas.SearchResults, responses=_example("search"))
async def search(
    request: Request,
    run: Run,
    q: Annotated[str, Query(max_length=MAX_NAME, description="What is typed so far.", examples=["fran"])],
    kind: Literal["any", "entity", "relation"] = "any",
    limit: Annotated[int, Query(ge=1, le=MAX_RESULTS)] = 10,
) -> Response:
    """Find entities and relations by the beginning of a name or a word, also with a typing error."""
    return await _answer(request, run, "search", q=q, kind=kind, limit=limit)


@api.get("/runs/{run}/entity", response_model=schemas.EntityPage, responses=_example("entity"))
async def entity(
    request: Request,
    run: Run,
    name: Entity,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Known facts of each group.")] = 20,
) -> Response:
    """Return the known facts of an entity by relation, the likely ones beside them, and similar entities."""
    return await _answer(request, run, "entity_page", name=name, limit=limit)


@api.get("/runs/{run}/neighbourhood", response_model=schemas.Neighbourhood, responses=_example("neighbourhood"))
async def neighbourhood(
    request: Request, run: Run, name: Entity, limit: Annotated[int, Query(ge=1, le=MAX_NODES)] = 24
) -> Response:
    """Return entities around one, and the known and likely triples between them."""
    return await _answer(request, run, "neighbourhood", name=name, limit=limit)


@api.get("/runs/{run}/relation", response_model=schemas.RelationPage, responses=_example("relation"))
async def relation(request: Request, run: Run, name: Relation) -> Response:
    """Return what is known of a relation: patterns, metrics, the best links and the worst errors."""
    return await _answer(request, run, "relation_page", name=name)


@api.get("/runs/{run}/metrics", response_model=schemas.Metrics, responses=_example("metrics"))
async def run_metrics(request: Request, run: Run) -> Response:
    """Return how well held-out triples are ranked, and how far probabilities are right."""
    return await _answer(request, run, "metrics_page")


# --- questions ---


@api.get("/runs/{run}/predict", response_model=schemas.Prediction, responses=_example("predict"))
async def predict(
    request: Request,
    run: Run,
    head: Head = None,
    relation: AnyRelation = None,
    tail: Tail = None,
    k: K = 10,
    known: Known = False,
    implausible: Implausible = False,
    of_type: OfType = None,
) -> Response:
    """Answer a query that gives two of head, relation and tail."""
    arguments = {"head": head, "relation": relation, "tail": tail, "k": k, "known": known}
    return await _answer(request, run, "predict", **arguments, any=implausible, type=of_type or None)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class QueryBody(_Body):
    """A query; the member that is asked for is left out, null or empty."""

    head: OptionalText = None
    relation: OptionalText = None
    tail: OptionalText = None


class PredictBody(_Body):
    """Queries that are answered together, with the same options."""

    queries: Annotated[list[QueryBody], Field(min_length=1, max_length=MAX_QUERIES)]
    k: Annotated[int, Field(ge=1, le=MAX_K)] = 10
    known: bool = False
    any: bool = False
    type: OptionalText = None


class ScoreBody(_Body):
    """Triples by name: head, relation, tail."""

    triples: Annotated[list[tuple[Text, Text, Text]], Field(min_length=1, max_length=MAX_TRIPLES)]


class ReviewBody(_Body):
    """A verdict on a triple."""

    head: Text
    relation: Text
    tail: Text
    verdict: Verdict


_QUERIES = {"queries": [{"head": "France", "relation": "borders"}, {"relation": "capital_of", "tail": "Peru"}], "k": 3}
_TRIPLES = {"triples": [["France", "borders", "Italy"]]}
_VERDICT = {"head": "Kenya", "relation": "borders", "tail": "Uganda", "verdict": "accept"}


@api.post("/runs/{run}/predict", response_model=schemas.Predictions, responses=_example("predict_many") | _POSTING)
async def predict_many(request: Request, run: Run, body: Annotated[PredictBody, Body(examples=[_QUERIES])]) -> Response:
    """Answer several queries at once."""
    arguments = body.model_dump()
    return await _answer(request, run, "predict_many", **{**arguments, "type": arguments["type"] or None})


@api.post("/runs/{run}/score", response_model=schemas.Scores, responses=_example("score") | _POSTING)
async def score(request: Request, run: Run, body: Annotated[ScoreBody, Body(examples=[_TRIPLES])]) -> Response:
    """Say how plausible given triples are: score, ranks, probability."""
    return await _answer(request, run, "score", triples=[list(names) for names in body.triples])


@api.get("/runs/{run}/discover", response_model=schemas.Links, responses=_example("discover"))
async def discover(
    request: Request,
    run: Run,
    relation: OfRelation = None,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 20,
) -> Response:
    """List the most plausible links that the graph lacks, page by page; 503 while they are searched."""
    return await _answer(request, run, "discover", relation=relation or None, page=page, size=size)


@api.get("/runs/{run}/similar", response_model=schemas.SimilarEntities, responses=_example("similar"))
async def similar(request: Request, run: Run, name: Entity, k: K = 10) -> Response:
    """List the entities with the most similar vectors."""
    return await _answer(request, run, "similar", name=name, k=k)


@api.get("/runs/{run}/why", response_model=schemas.Reasons, responses=_example("why"))
async def why(
    request: Request,
    run: Run,
    head: Entity,
    relation: Relation,
    tail: Annotated[str, Query(min_length=1, max_length=MAX_NAME, examples=["Italy"])],
    side: Literal["head", "tail"] = "tail",
    k: Annotated[int, Query(ge=1, le=MAX_SUPPORT * 4, description="Facts of each kind.")] = 5,
) -> Response:
    """Say why an answer is given: rules, facts that it depends on, and known facts of similar entities."""
    return await _answer(request, run, "why", head=head, relation=relation, tail=tail, side=side, k=k)


# --- reviews ---


_EXPORT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The triples.", "content": {"text/csv": {"schema": {"type": "string"}}}}
}


def _reviews(request: Request, run: Run) -> Reviews:
    """Return the verdicts of a run."""
    found: Reviews | None = request.app.state.service.reviews.get(run)
    if found is None:
        raise ReviewsOffError("no verdicts are stored for this run: the server could not write beside it")
    return found


Stored = Annotated[Reviews, Depends(_reviews)]


@reviews.get("", response_model=schemas.ReviewLinks, responses=_example("review") | _responses(403))
async def review(
    request: Request,
    run: Run,
    stored: Stored,
    relation: OfRelation = None,
    size: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 20,
) -> Response:
    """List the next links that nobody has judged."""
    links: list[Any] = []
    page, remaining, total, of = 1, 0, 1, None
    while (page - 1) * MAX_PAGE < total:
        arguments = {"relation": relation or None, "page": page, "size": MAX_PAGE}
        found = await request.app.state.service.engine.call(run, "discover", arguments)
        total, of, page = found["total"], found["relation"], page + 1
        for link in found["links"]:
            if not stored.judged((link["head"]["name"], link["relation"]["name"], link["tail"]["name"])):
                remaining += 1
                links += [link] * (len(links) < size)
    return JSONReply({"links": links, "remaining": remaining, "relation": of})


@reviews.post("", response_model=schemas.Judged, responses=_example("judged") | _POSTING)
async def judge(
    request: Request, run: Run, stored: Stored, body: Annotated[ReviewBody, Body(examples=[_VERDICT])]
) -> Response:
    """Store a verdict on a triple; a later one takes its place."""
    names = {"head": body.head, "relation": body.relation, "tail": body.tail}
    triple = await request.app.state.service.engine.call(run, "triple", names)
    key = (triple["head"]["name"], triple["relation"]["name"], triple["tail"]["name"])
    await run_in_threadpool(stored.add, key, body.verdict)
    return JSONReply({"triple": triple, "verdict": body.verdict})


@reviews.get("/summary", response_model=schemas.ReviewSummary, responses=_example("summary") | _responses(403))
async def summary(stored: Stored) -> Response:
    """Count verdicts, and estimate the precision of the links."""
    return JSONReply(stored.summary())


@reviews.get("/export", response_model=schemas.ReviewExport, responses=_EXPORT | _responses(403))
async def export(run: Run, stored: Stored, format: Literal["csv", "json"] = "json") -> Response:
    """Return the accepted triples as a file; as JSON, also the estimate of how many links are right."""
    headers = {"content-disposition": f'attachment; filename="{run}-accepted.{format}"'}
    if format == "json":
        return JSONReply({"triples": stored.accepted(), "summary": stored.summary()}, headers=headers)
    text = io.StringIO(newline="")
    csv.writer(text).writerows(csv_rows(stored.accepted()))
    return Response(text.getvalue().encode("utf-8", "backslashreplace"), headers=headers, media_type="text/csv")
