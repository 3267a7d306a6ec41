"""The functions that a request may cause to run, by name: plain arguments in, plain dictionaries out.

Arguments come from strangers. Sizes are bounded here, whatever stands before, and a name is only ever looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pairre.graph import SPLITS
from pairre.graph.lookup import FoundTriples
from pairre.inference import score as score_triples
from pairre.inference.answers import Answers, Choice, answer
from pairre.inference.explain import Explanation
from pairre.inference.firing import Fact as NamedFact
from pairre.inference.neighbours import nearest
from pairre.serve.bounds import (
    MAX_ANSWERS,
    MAX_K,
    MAX_PAGE,
    MAX_QUERIES,
    MAX_RESULTS,
    MAX_SUPPORT,
    MAX_TRIPLES,
)
from pairre.serve.contract import OverLimitError, ServeError, UnknownNameError, as_serve_error, within
from pairre.serve.pages import discovered, entity_page, landing, metrics_page, neighbourhood, relation_page
from pairre.serve.quick import Ids, is_quick, quick_predictions
from pairre.serve.schemas import (
    Answer,
    Drop,
    Fact,
    Links,
    Prediction,
    Predictions,
    Query,
    Reasons,
    RunSummary,
    Score,
    Scores,
    SearchResults,
    Side,
    SimilarEntities,
    Split,
    Triple,
)
from pairre.serve.state import RunState
from pairre.support.errors import PairREError
from pairre.support.text import json_text


def search(state: RunState, q: str, kind: str = "any", limit: int = 10) -> SearchResults:
    """Return the entities and relations that a text may mean, as it is typed."""
    within("limit", limit, MAX_RESULTS)
    order = {"exact": 0, "prefix": 1, "word": 2, "typo": 3}
    found = []
    if kind in ("any", "entity"):
        for hit in state.entity_search.find(q, limit):
            found.append(("entity", state.entity_ref(hit.id), int(state.num_facts[hit.id]), hit.match))
    if kind in ("any", "relation"):
        for hit in state.relation_search.find(q, limit):
            num = int(state.num_triples[hit.id].sum())
            found.append(("relation", state.relation_ref(hit.id), num, hit.match))
    found.sort(key=lambda one: order[one[3]])  # stable: within a kind of match as each index has them
    return {
        "results": [
            {"kind": kind, "ref": ref, "num_facts": num, "match": match}  # type: ignore[typeddict-item]
            for kind, ref, num, match in found[:limit]
        ]
    }


# --- predict ---


def predict(state: RunState, **arguments: Any) -> Prediction:
    """Return the best answers to one query: two of head, relation and tail; see `inference.predict`."""
    [result] = predict_together(state, [arguments])
    if isinstance(result, ServeError):
        raise result
    return result


def predict_many(state: RunState, queries: Sequence[Mapping[str, Any]], k: int = 10, **choice: Any) -> Predictions:
    """Return the best answers to each of several queries."""
    within("queries", len(queries), MAX_QUERIES)
    if k * len(queries) > MAX_ANSWERS:
        raise OverLimitError(f"{len(queries):,} queries with k = {k:,}: at most {MAX_ANSWERS:,} answers in a request")
    results = predict_together(state, [{**query, "k": k, **choice} for query in queries])
    for number, result in enumerate(results):
        if isinstance(result, ServeError):
            raise type(result)(f"query {number + 1}: {result}", result.suggestions, result.retry_after)
    return {"results": [result for result in results if not isinstance(result, ServeError)]}


def predict_together(state: RunState, calls: Sequence[Mapping[str, Any]]) -> list[Prediction | ServeError]:
    """Return the answers of many calls of `predict`, those with the same options scored together, or their errors."""
    results: list[Prediction | ServeError | None] = [None] * len(calls)
    groups: dict[tuple[Any, ...], list[tuple[int, Ids]]] = {}
    for position, call in enumerate(calls):
        try:
            ids, options = _query(state, **call)
        except PairREError as error:
            results[position] = as_serve_error(error)
        else:
            groups.setdefault((is_quick(state, ids, options[0]), *options), []).append((position, ids))
    for (quick, k, known, any, type), members in groups.items():
        queries = [ids for _, ids in members]
        try:
            choice = Choice.of(state.run.graph, k, known, any, None, type)
            if quick:
                results_of_group: list[Prediction | ServeError] = list(quick_predictions(state, queries, choice))
            else:
                results_of_group = list(_predictions(state, queries, answer(state.run, torch.tensor(queries), choice)))
        except PairREError as error:
            results_of_group = [as_serve_error(error)] * len(members)
        for (position, _), result in zip(members, results_of_group, strict=True):
            results[position] = result
    return [result for result in results if result is not None]


def _query(
    state: RunState,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    k: int = 10,
    known: bool = False,
    any: bool = False,
    type: str | None = None,
) -> tuple[Ids, tuple[int, bool, bool, str | None]]:
    """Return a query by id, with −1 for its open member, and the options that decide which candidates it has."""
    within("k", k, MAX_K)
    if sum(not name for name in (head, relation, tail)) != 1:
        raise ServeError("give two of head, relation and tail; the third is what is predicted")
    if type is not None:
        if not relation:
            raise ServeError("type: of entities, and what a query of head and tail asks for is a relation")
        try:
            state.run.graph.type_names.find(type)
        except (PairREError, UnicodeEncodeError) as error:
            names = state.run.graph.type_names
            near = [names.show(id) for id in range(min(5, len(names.vocabulary)))]
            raise UnknownNameError("no type of entities has that name", near) from error
    ids = (
        state.entity(head) if head else -1,
        state.relation(relation) if relation else -1,
        state.entity(tail) if tail else -1,
    )
    return ids, (k, known, any, type)


def _predictions(state: RunState, queries: list[Ids], found: Answers) -> list[Prediction]:
    """Return the answers to queries by id, in their order."""
    answers, start, results = state.answers(found), 0, list[Prediction]()
    counts, implausible = found.count.tolist(), found.num_implausible.tolist()
    for (head, relation, tail), count, num_implausible in zip(queries, counts, implausible, strict=True):
        query: Query = {
            "head": None if head < 0 else state.entity_ref(head),
            "relation": None if relation < 0 else state.relation_ref(relation),
            "tail": None if tail < 0 else state.entity_ref(tail),
        }
        results.append({"query": query, "answers": answers[start : start + count], "num_implausible": num_implausible})
        start += count
    return results


# --- score, discover, similar ---


def score(state: RunState, triples: Sequence[Sequence[str]]) -> Scores:
    """Return what the model says of given triples."""
    within("triples", len(triples), MAX_TRIPLES)
    ids = []
    for row, names in enumerate(triples, start=1):
        try:
            ids.append(_triple_ids(state, *names))
        except UnknownNameError as error:
            raise UnknownNameError(f"triple {row}: {error}", error.suggestions) from error
    found = FoundTriples(torch.tensor(ids), torch.arange(1, len(ids) + 1))
    scores: list[Score] = []
    for (head, relation, tail), one in zip(ids, score_triples(state.run, found), strict=True):
        scores.append(
            {
                "head": state.entity_ref(head),
                "relation": state.relation_ref(relation),
                "tail": state.entity_ref(tail),
                "score": one.score,
                "head_rank": one.head_rank or 0.0,
                "tail_rank": one.tail_rank or 0.0,
                "probability": one.probability,
                "base_rate": one.base_rate,
                "known": one.known,  # type: ignore[typeddict-item]
            }
        )
    return {"scores": scores}


def triple(state: RunState, head: str, relation: str, tail: str) -> Triple:
    """Return a triple of names of the graph as people read it."""
    return state.triple(_triple_ids(state, head, relation, tail))


def _triple_ids(state: RunState, head: str, relation: str, tail: str) -> tuple[int, int, int]:
    return state.entity(head), state.relation(relation), state.entity(tail)


def discover(state: RunState, relation: str | None = None, page: int = 1, size: int = 20) -> Links:
    """Return a page of the most plausible links that the graph lacks, of all relations or of one."""
    within("size", size, MAX_PAGE)
    if page < 1:
        raise OverLimitError(f"page {page}: pages are counted from 1")
    wanted = None if relation is None else state.relation(relation)
    links, total = discovered(state, wanted, (page - 1) * size, size)
    of = None if wanted is None else state.relation_ref(wanted)
    return {"links": links, "page": page, "size": size, "total": total, "relation": of}


def similar(state: RunState, name: str, k: int = 10) -> SimilarEntities:
    """Return the entities with the most similar vectors."""
    within("k", k, MAX_K)
    id = state.entity(name)
    ids, values = nearest(state.run, id, k)
    rows = zip(ids.tolist(), values.tolist(), strict=True)
    return {
        "entity": state.entity_ref(id),
        "similar": [{"entity": state.entity_ref(other), "similarity": value} for other, value in rows],
    }


# --- why ---


def why(state: RunState, head: str, relation: str, tail: str, side: Side = "tail", k: int = 5) -> Reasons:
    """Return the rules, facts and similar facts that an answer rests on; see `inference.explain`."""
    within("k", k, MAX_SUPPORT * 4)
    if side not in ("head", "tail"):
        raise ServeError("side: head or tail expected")
    ids = _triple_ids(state, head, relation, tail)
    found = state.explanation(*ids, side, k)
    fact = _facts(state, found)
    return {
        "triple": _explained(state, ids, found),
        "side": side,
        "rules": [
            {
                "text": rule.rule,
                "kind": rule.kind,
                "confidence": rule.confidence,
                "support": rule.support,
                "facts": [[fact[one] for one in way] for way in rule.ways],
                "num_ways": rule.num_ways,
            }
            for rule in found.rules
        ],
        "necessary": [{"fact": fact[one.fact], "of": one.of, "drop": _drop(found, one.of, one)} for one in found.facts],
        "similar_facts": [
            {"fact": fact[one.fact], "of": one.of, "similarity": one.similarity} for one in found.similar
        ],
    }


def _explained(state: RunState, ids: tuple[int, int, int], found: Explanation) -> Answer:
    """Return the answer that is explained."""
    known: Split | None = found.known  # type: ignore[assignment]
    return {
        **state.triple(ids),
        "rank": found.rank,
        "score": found.score,
        "probability": found.probability,
        "base_rate": found.base_rate,
        "known": known,
    }


def _facts(state: RunState, found: Explanation) -> dict[NamedFact, Fact]:
    """Return each fact of an explanation as people read it, with the split that has it."""
    graph = state.run.graph
    mentioned = list(dict.fromkeys(found.mentioned()))
    ids = [
        (graph.entities.id(fact.head), graph.relations.id(fact.relation), graph.entities.id(fact.tail))
        for fact in mentioned
    ]
    splits = graph.split_of(torch.tensor(ids).reshape(-1, 3)).tolist()
    return {
        fact: state.fact(triple, None if split < 0 else SPLITS[split])
        for fact, triple, split in zip(mentioned, ids, splits, strict=True)
    }


def _drop(found: Explanation, of: str, one: Any) -> Drop:
    """Return how an answer stands with all facts of an end, and without one of them."""
    refit = found.refits[of]
    return {
        "rank_before": refit.rank,
        "rank_after": one.rank,
        "score_before": refit.score,
        "score_after": one.score,
        "probability_before": refit.probability,
        "probability_after": one.probability,
    }


# --- all functions ---


def summary(state: RunState) -> RunSummary:
    """Return what a run is."""
    return state.summary()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(summary, landing, search, entity_page, neighbourhood, relation_page, predict, predict_many),
        *(score, triple, discover, similar, why, metrics_page),
    )
}


def answer_call(state: RunState, function: str, arguments: Mapping[str, Any]) -> Any:
    """Return what a function of `FUNCTIONS` answers; whatever is wrong with the arguments is a ServeError."""
    try:
        with torch.no_grad():
            return FUNCTIONS[function](state, **arguments)
    except PairREError as error:
        raise as_serve_error(error) from error


def answer_json(state: RunState, function: str, arguments: Mapping[str, Any]) -> bytes:
    """Return what a function of `FUNCTIONS` answers, as JSON; a number that is not finite is a ServeError."""
    return as_json(answer_call(state, function, arguments))


def as_json(answer: Any) -> bytes:
    """Return an answer as JSON on one line, without control characters; see `support.text.json_text`."""
    from orjson import dumps

    # Ten times as fast. It writes null for a number that is not finite, which scores have been checked for.
    if (data := dumps(answer)).isascii() and b"\x7f" not in data:
        return data
    try:
        return json_text(answer, None).encode()
    except PairREError as error:
        raise as_serve_error(error) from error
