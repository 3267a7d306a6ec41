"""Verdicts on links."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from pairre.serve.schemas.common import Answer, Ref, Triple


class Judged(TypedDict):
    """A verdict that was stored."""

    triple: Triple
    verdict: Literal["accept", "reject", "skip", "undo"]


class ReviewLinks(TypedDict):
    """The next links that nobody has judged, best first, and how many there are."""

    links: list[Answer]
    remaining: int
    relation: Ref | None


class PrecisionEstimate(TypedDict):
    """The share of judged links that were accepted, with its 95% interval (Wilson)."""

    estimate: float
    low: float
    high: float


class ReviewSummary(TypedDict):
    """How many links were judged how; skipped ones do not count for the precision."""

    accepted: int
    rejected: int
    skipped: int
    precision: PrecisionEstimate | None


class Accepted(TypedDict):
    """A triple that a reviewer accepted, by the names that the graph has, and when."""

    head: str
    relation: str
    tail: str
    when: str


class ReviewExport(TypedDict):
    """The accepted triples, and the estimate of how many links are right that they come with."""

    triples: list[Accepted]
    summary: ReviewSummary
