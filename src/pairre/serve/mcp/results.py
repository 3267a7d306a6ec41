"""What the tools return: names as people read them, which any tool takes again, and numbers of a few digits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict  # that of `typing` is not enough for Pydantic before Python 3.12

_DIGITS = 4
_MAX_FACTS = 3  # of a way in which a rule fires


class FoundName(TypedDict):
    """An entity or a relation, the number of facts about it, and the types of entities where they are known."""

    name: str
    kind: Literal["entity", "relation"]
    num_facts: int
    type: NotRequired[str]


class SearchResult(TypedDict):
    """What a text may mean, the best first."""

    results: list[FoundName]


class FactsOfRelation(TypedDict):
    """Facts of an entity with one relation; `entity_is` says whether the entity is their head or their tail."""

    relation: str
    entity_is: Literal["head", "tail"]
    others: list[str]
    num_facts: int


class FactsResult(TypedDict):
    """The known facts of an entity."""

    entity: str
    types: list[str]
    num_facts: int
    facts: list[FactsOfRelation]


class PredictedAnswer(TypedDict):
    """An answer and how likely it is; `known` is the split of the graph that has it."""

    answer: str
    probability: float | None
    score: float
    known: NotRequired[str]


class PredictResult(TypedDict):
    """The best answers to a query, best first; probabilities are those where a share `base_rate` of answers is true."""

    query: str
    answers: list[PredictedAnswer]
    base_rate: float | None


class FiringRule(TypedDict):
    """A rule that concludes the triple, how often it is right on known facts, and facts that make it fire."""

    rule: str
    confidence: float
    because: list[list[str]]


class NecessaryFact(TypedDict):
    """A fact without which the answer would rank lower."""

    fact: str
    rank_without_it: int


class SimilarFact(TypedDict):
    """A known fact of an entity that is similar to one of the triple."""

    fact: str
    similarity: float


class WhyResult(TypedDict):
    """What speaks for a triple; its rank is among the plausible answers that are not known."""

    triple: str
    rank: int
    probability: float | None
    known: str | None
    rules: list[FiringRule]
    depends_on: list[NecessaryFact]
    similar_facts: list[SimilarFact]


class SimilarName(TypedDict):
    """An entity and the cosine of its vector with that of another."""

    name: str
    similarity: float


class SimilarResult(TypedDict):
    """The entities that are most similar to one."""

    entity: str
    similar: list[SimilarName]


def shortened_search(found: Mapping[str, Any]) -> SearchResult:
    """Return what a search found."""
    results: list[FoundName] = []
    for one in found["results"]:
        result: FoundName = {"name": one["ref"]["shown"], "kind": one["kind"], "num_facts": one["num_facts"]}
        if one["ref"]["type"] is not None:
            result["type"] = one["ref"]["type"]
        results.append(result)
    return {"results": results}


def shortened_facts(page: Mapping[str, Any], relation: str | None) -> FactsResult:
    """Return the known facts of the page of an entity, all or those of a relation."""
    groups = [group for group in page["groups"] if group["num_facts"] and _is_meant(group["relation"], relation)]
    return {
        "entity": page["entity"]["shown"],
        "types": page["types"],
        "num_facts": page["num_facts"],
        "facts": [
            {
                "relation": group["relation"]["shown"],
                "entity_is": "head" if group["side"] == "tail" else "tail",
                "others": [fact["entity"]["shown"] for fact in group["facts"]],
                "num_facts": group["num_facts"],
            }
            for group in groups
        ],
    }


def _is_meant(ref: Mapping[str, Any], relation: str | None) -> bool:
    """Return whether a relation is the one that is wanted, if one is."""
    return relation is None or relation.casefold() in {
        (ref[key] or "").casefold() for key in ("name", "shown", "label")
    }


def shortened_prediction(found: Mapping[str, Any]) -> PredictResult:
    """Return the answers to a query."""
    query = found["query"]
    opened = next(member for member in ("head", "relation", "tail") if query[member] is None)
    answers: list[PredictedAnswer] = []
    for one in found["answers"]:
        answer: PredictedAnswer = {
            "answer": one[opened]["shown"],
            "probability": _rounded(one["probability"]),
            "score": round(one["score"], _DIGITS),
        }
        if one["known"] is not None:
            answer["known"] = one["known"]
        answers.append(answer)
    members = (query[member]["shown"] if query[member] else "?" for member in ("head", "relation", "tail"))
    base_rate = found["answers"][0]["base_rate"] if found["answers"] else None
    return {"query": " | ".join(members), "answers": answers, "base_rate": _rounded(base_rate)}


def shortened_reasons(found: Mapping[str, Any]) -> WhyResult:
    """Return why an answer is given."""
    answer = found["triple"]
    return {
        "triple": _text(answer),
        "rank": answer["rank"],
        "probability": _rounded(answer["probability"]),
        "known": answer["known"],
        "rules": [
            {
                "rule": rule["text"],
                "confidence": round(rule["confidence"], _DIGITS),
                "because": [[_text(fact) for fact in way] for way in rule["facts"][:_MAX_FACTS]],
            }
            for rule in found["rules"]
        ],
        "depends_on": [
            {"fact": _text(one["fact"]), "rank_without_it": one["drop"]["rank_after"]} for one in found["necessary"]
        ],
        "similar_facts": [
            {"fact": _text(one["fact"]), "similarity": round(one["similarity"], _DIGITS)}
            for one in found["similar_facts"]
        ],
    }


def shortened_similar(found: Mapping[str, Any]) -> SimilarResult:
    """Return the entities that are similar to one."""
    return {
        "entity": found["entity"]["shown"],
        "similar": [
            {"name": one["entity"]["shown"], "similarity": round(one["similarity"], _DIGITS)}
            for one in found["similar"]
        ],
    }


def _text(triple: Mapping[str, Any]) -> str:
    """Return a triple on one line."""
    return " | ".join(triple[member]["shown"] for member in ("head", "relation", "tail"))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
