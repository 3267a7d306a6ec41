"""What the pages show: the graph as a whole, an entity, what is around it, a relation, and the metrics of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairre.analysis.patterns import FORMULAS, paired_vectors, products
from pairre.evaluation import calibration_of
from pairre.evaluation.metrics import METRICS
from pairre.graph import SPLITS
from pairre.graph.index import COLUMN
from pairre.inference.answers import Answers, Choice, answer
from pairre.inference.neighbours import nearest
from pairre.serve.bounds import MAX_LIMIT, MAX_NODES
from pairre.serve.contract import OverLimitError, within
from pairre.serve.parts import held_out
from pairre.serve.schemas import (
    Answer,
    Edge,
    EntityPage,
    FactGroup,
    Histogram,
    Landing,
    Metrics,
    MetricValue,
    Neighbourhood,
    PatternOfRelation,
    Question,
    RankedRelation,
    RelationPage,
    Side,
    TypeSample,
    WorstError,
)
from pairre.serve.state import RunState

MAX_GROUPS, MAX_ASKED, MAX_UNSEEN = 100, 40, 10  # of an entity: shown, asked for likely facts, without a known fact
NUM_LIKELY, NUM_SIMILAR, NUM_RELATIONS, NUM_TYPES, NUM_OF_TYPE = 3, 10, 5, 8, 6
NUM_PATTERNS, NUM_LINKS, NUM_FACTS, NUM_BINS, NUM_INSTEAD = 20, 10, 10, 24, 3
_MIN_RANKED = 5  # held-out triples from which a relation is among the best or worst
_PATTERNS = {
    "symmetry": "{}(x, y) ⇒ {}(y, x)",
    "inverse": "{}(x, y) ⇔ {}(y, x)",
    "subrelation": "{}(x, y) ⇒ {}(x, y)",
    "composition": "{}(x, y) ∧ {}(y, z) ⇒ {}(x, z)",
}


# --- landing ---


def landing(state: RunState) -> Landing:
    """Return what the graph is, which relations the model knows best and worst, and questions to try."""
    best, worst = _ranked_relations(state)
    return {
        **state.summary(),
        "sample_entities": _samples(state),
        "best_relations": best,
        "worst_relations": worst,
        "questions": _questions(state),
        "preparing": state.store.missing(),
    }


def _samples(state: RunState) -> list[TypeSample]:
    """Return the entities with the most facts, of each of the largest types where there are any."""
    types, num_facts = state.run.graph.entity_types, torch.from_numpy(state.num_facts)
    if types is None:
        ids = num_facts.argsort(descending=True, stable=True)[: 2 * NUM_OF_TYPE]
        refs = [state.entity_ref(id) for id in ids.tolist()]
        return [{"type": None, "num_entities": len(num_facts), "entities": refs}]
    sizes = torch.bincount(types.types.long(), minlength=len(types.names))
    samples: list[TypeSample] = []
    for type in sizes.argsort(descending=True, stable=True)[:NUM_TYPES].tolist():
        members = types.members(type).long()
        ids = members[num_facts[members].argsort(descending=True, stable=True)[:NUM_OF_TYPE]]
        refs = [state.entity_ref(id) for id in ids.tolist()]
        samples.append({"type": state.run.graph.type_names.show(type), "num_entities": len(members), "entities": refs})
    return samples


def _ranked_relations(state: RunState) -> tuple[list[RankedRelation], list[RankedRelation]]:
    """Return the relations with the best and with the worst MRR, none of them twice."""
    metrics = state.store.find("metrics") or {}
    groups: dict[str, Any] = metrics.get("by_relation", {})
    enough = {name: one for name, one in groups.items() if one["num_triples"] >= _MIN_RANKED} or groups
    rows: list[RankedRelation] = [
        {
            "relation": state.relation_ref(state.relation(name)),
            "mrr": one["both"]["mrr"],
            "num_triples": one["num_triples"],
        }
        for name, one in enough.items()
    ]
    rows.sort(key=lambda row: -row["mrr"])
    num = min(NUM_RELATIONS, (len(rows) + 1) // 2)
    return rows[:num], rows[max(num, len(rows) - NUM_RELATIONS) :][::-1]


def _questions(state: RunState) -> list[Question]:
    """Return a question of each kind about entities with many facts, of the most frequent relations."""
    graph, questions = state.run.graph, list[Question]()
    triples = graph.split(held_out(state.run) or "train").long()
    counts = torch.bincount(triples[:, 1], minlength=graph.num_relations)
    frequent = [r for r in counts.argsort(descending=True, stable=True).tolist() if counts[r]]
    if not frequent:
        return []
    num_facts = torch.from_numpy(state.num_facts)
    links = state.store.find("links")
    for number, side in enumerate(("tail", "head", "relation")):
        rows = triples[triples[:, 1] == frequent[number % len(frequent)]]
        if side == "relation" and links is not None and len(links["triples"]):
            rows = links["triples"][:1].long()  # a pair that has an answer which the graph lacks
        known = num_facts[rows[:, (0, 2)]].min(1).values
        head, relation, tail = state.triple(rows[int(known.argmax())].tolist()).values()
        members: dict[str, Any] = {"head": head, "relation": relation, "tail": tail, side: None}
        text = " — ".join("?" if ref is None else ref["shown"] for ref in members.values())
        questions.append({"text": text, **members})  # type: ignore[typeddict-item]
    return questions


# --- entity ---


@dataclass(frozen=True)
class _Group:
    """The known facts of an entity with one relation, whose open side has these entities."""

    relation: int
    side: Side  # the open one
    entities: Tensor


def entity_page(state: RunState, name: str, limit: int = 20) -> EntityPage:
    """Return the facts of an entity by relation, what is likely beside them, and similar entities."""
    id = state.entity(name)
    within("limit", limit, MAX_LIMIT)
    groups = sorted(_groups(state, id), key=lambda group: -len(group.entities))
    shown = [*groups[:MAX_GROUPS], *_unseen(state, id, groups)]
    likely = _likely(state, id, shown[:MAX_ASKED])
    listed = [
        _fact_group(state, id, group, limit, likely.get(number, []))
        for number, group in enumerate(shown)
        if len(group.entities) or likely.get(number)
    ]
    ids, values = nearest(state.run, id, NUM_SIMILAR)
    return {
        "entity": state.entity_ref(id),
        "types": state.types_of(id),
        "num_facts": sum(len(group.entities) for group in groups),
        "num_groups": len(groups),
        "groups": listed,
        "similar": [
            {"entity": state.entity_ref(other), "similarity": value}
            for other, value in zip(ids.tolist(), values.tolist(), strict=True)
        ],
    }


def _groups(state: RunState, id: int) -> Iterator[_Group]:
    """Yield the known facts of an entity by relation and side."""
    graph = state.run.graph
    sides: tuple[Side, Side] = ("tail", "head")
    for side in sides:
        index = graph.known.side(side)
        keys = torch.tensor([id, id + 1]) * graph.num_relations
        start, end = torch.searchsorted(index.pair_keys, keys).tolist()
        for pair in range(start, end):
            members = index.members[int(index.offsets[pair]) : int(index.offsets[pair + 1])].long()
            yield _Group(int(index.pair_keys[pair]) % graph.num_relations, side, members)


def _unseen(state: RunState, id: int, groups: list[_Group]) -> list[_Group]:
    """Return groups without known facts, of the most frequent relations that an entity is plausible for."""
    seen = {(group.relation, group.side) for group in groups}
    domains, entity, found = state.run.graph.domains, torch.tensor([id]), list[_Group]()
    for relation in state.num_triples[:, 0].argsort(descending=True, stable=True).tolist():
        for side, own in (("tail", "head"), ("head", "tail")):
            if (relation, side) not in seen and len(found) < MAX_UNSEEN and domains.allows(relation, own, entity)[0]:  # type: ignore[arg-type]
                found.append(_Group(relation, side, torch.empty(0, dtype=torch.int64)))  # type: ignore[arg-type]
        if len(found) == MAX_UNSEEN:
            break
    return found


def _likely(state: RunState, id: int, groups: list[_Group]) -> dict[int, list[Answer]]:
    """Return the best new answers beside groups, by their number; a side that has one entity only is not asked."""
    queries, numbers = [], []
    for number, group in enumerate(groups):
        category = state.categories[group.relation]
        one = category.endswith("1") if group.side == "tail" else category.startswith("1")
        if not (one and len(group.entities)):
            query = [id, group.relation, id]
            query[COLUMN[group.side]] = -1
            queries.append(query)
            numbers.append(number)
    if not queries:
        return {}
    found = answer(state.run, torch.tensor(queries), Choice(k=NUM_LIKELY))
    answers = state.answers(found)
    ends = found.count.cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    return {number: answers[start:end] for number, start, end in zip(numbers, starts, ends, strict=True)}


def _fact_group(state: RunState, id: int, group: _Group, limit: int, likely: list[Answer]) -> FactGroup:
    """Return a group as people read it, with the facts of the best known entities."""
    order = np.argsort(-state.num_facts[group.entities.numpy()], kind="stable")[:limit]
    others = group.entities[torch.from_numpy(order)]
    triples = torch.full((len(others), 3), id)
    triples[:, 1] = group.relation
    triples[:, COLUMN[group.side]] = others
    splits = state.run.graph.split_of(triples).tolist()
    return {
        "relation": state.relation_ref(group.relation),
        "side": group.side,
        "num_facts": len(group.entities),
        "facts": [
            {"entity": state.entity_ref(other), "split": SPLITS[split]}
            for other, split in zip(others.tolist(), splits, strict=True)
        ],
        "likely": likely,
    }


def neighbourhood(state: RunState, name: str, limit: int = 24) -> Neighbourhood:
    """Return entities around one: of its known facts, relation by relation, and of the most likely new ones."""
    id, graph = state.entity(name), state.run.graph
    within("limit", limit, MAX_NODES)
    groups = sorted(_groups(state, id), key=lambda group: len(group.entities))
    in_turn = zip_longest(*(group.entities[:limit].tolist() for group in groups))  # one of each relation at a time
    known = [entity for row in in_turn for entity in row if entity is not None and entity != id]
    likely = [one for of_group in _likely(state, id, groups[:MAX_ASKED]).values() for one in of_group]
    likely.sort(key=lambda one: -(one["probability"] or 0))
    predicted = likely[: limit // 4]
    nodes = dict.fromkeys(known, 1)
    nodes = dict(list(nodes.items())[: limit - len(predicted)])
    edges: list[Edge] = []
    for one in predicted:
        edge = {"head": one["head"]["name"], "relation": one["relation"], "tail": one["tail"]["name"]}
        edges.append({**edge, "predicted": True, "probability": one["probability"]})  # type: ignore[typeddict-item]
        for end in ("head", "tail"):
            nodes.setdefault(graph.entities.id(one[end]["name"]), 1)
    nodes.pop(id, None)
    ids = torch.tensor([id, *nodes])
    pairs = torch.cartesian_prod(ids, ids)
    triples = torch.stack([pairs[:, 0], torch.zeros_like(pairs[:, 0]), pairs[:, 1]], 1)
    row, relations = graph.known.side("relation").known(triples)
    for (head, tail), relation in zip(pairs[row].tolist(), relations.tolist(), strict=True):
        edges.append(
            {
                "head": graph.entities[head],
                "relation": state.relation_ref(relation),
                "tail": graph.entities[tail],
                "predicted": False,
                "probability": None,
            }
        )
    refs = [{"ref": state.entity_ref(other), "hops": int(other != id)} for other in ids.tolist()]
    return {"nodes": refs, "edges": edges}  # type: ignore[typeddict-item]


# --- relation ---


def relation_page(state: RunState, name: str) -> RelationPage:
    """Return what is known of a relation: sizes, patterns, metrics, the best links and the worst errors."""
    id, graph = state.relation(name), state.run.graph
    metrics = (state.store.find("metrics") or {}).get("by_relation", {}).get(graph.relations[id], {})
    _, tails_per_head, heads_per_tail = state.means
    links = discovered(state, id, 0, NUM_LINKS)[0] if state.store.find("links") is not None else []
    return {
        "relation": state.relation_ref(id),
        "category": state.categories[id],
        "num_triples": state.counts(id),
        "num_heads": len(graph.domains.observed(id, "head")),
        "num_tails": len(graph.domains.observed(id, "tail")),
        "tails_per_head": float(tails_per_head[id]),
        "heads_per_tail": float(heads_per_tail[id]),
        "patterns": _patterns(state, id),
        "histogram": _histogram(state, id),
        "metrics": _metric_values(metrics["both"], metrics["interval_95"]) if metrics else [],
        "num_ranked": metrics.get("num_triples", 0),
        "discovered": links,
        "worst_errors": [_worst_error(state, error) for error in metrics.get("errors", [])],
        "sample": [state.fact(ids, "train") for ids in _sample(state, id).tolist()],
        "preparing": state.store.missing(),
    }


def _sample(state: RunState, id: int) -> Tensor:
    """Return some triples [N, 3] of train with a relation, of the heads with the most facts, one of each first."""
    rows = state.run.graph.train[state.run.graph.train[:, 1] == id].long()
    rows = rows[torch.from_numpy(np.argsort(-state.num_facts[rows[:, 0].numpy()], kind="stable"))]
    first = np.sort(np.unique(rows[:, 0].numpy(), return_index=True)[1])
    return rows[torch.from_numpy(np.r_[first, np.setdiff1d(np.arange(len(rows)), first)][:NUM_FACTS])]


def _patterns(state: RunState, id: int) -> list[PatternOfRelation]:
    """Return the patterns that a relation is part of, those that train confirms first."""
    rows = (state.store.find("patterns") or {}).get("patterns", [])
    found: list[PatternOfRelation] = []
    for row in [row for row in rows if id in row["ids"]][:NUM_PATTERNS]:
        refs = [state.relation_ref(other) for other in row["ids"]]
        shown = [ref["shown"] for ref in refs] * (2 if row["kind"] == "symmetry" else 1)
        found.append(
            {
                "pattern": row["kind"],
                "text": _PATTERNS[row["kind"]].format(*shown),
                "relations": refs,
                "confidence": row["confidence"],
                "agreement": row["agreement"],
            }
        )
    return found


def _histogram(state: RunState, id: int) -> Histogram | None:
    """Return the histogram of (rᴴ)² − (rᵀ)², which is narrow for a symmetric relation; None without paired vectors."""
    vectors = paired_vectors(state.run.model)
    if vectors is None:
        return None
    one, other = products(vectors, "symmetry", np.array([[id]]))
    residual = (one - other)[0]
    widest = float(np.abs(residual).max()) or 1.0
    counts, edges = np.histogram(residual, NUM_BINS, (-widest, widest))
    return {"text": FORMULAS["symmetry"], "edges": edges.tolist(), "counts": counts.tolist()}


def _worst_error(state: RunState, error: Mapping[str, Any]) -> WorstError:
    return {
        "triple": state.triple(error["triple"]),
        "side": error["side"],
        "rank": error["rank"],
        "better": [state.entity_ref(id) for id in error["better"][:NUM_INSTEAD]],
    }


def discovered(state: RunState, relation: int | None, start: int, size: int) -> tuple[list[Answer], int]:
    """Return some of the discovered links, and how many there are; a NotPreparedError while they are searched."""
    found, rows = state.store.get("links"), state.link_rows(relation)
    chosen = rows[start : start + size]
    triples, scores = found["triples"][chosen].long(), found["scores"][chosen]
    calibration = calibration_of(state.run)
    p: list[float | None] = [None] * len(triples)
    if calibration is not None:
        p = calibration.of_triples(scores, triples)
    base_rate = None if calibration is None else calibration.base_rate
    rank = torch.arange(start + 1, start + 1 + len(triples))
    unknown, none = torch.full((len(triples),), -1, dtype=torch.int8), torch.zeros(0, dtype=torch.int64)
    return state.answers(Answers(rank, rank, triples, scores, p, base_rate, unknown, none, none)), len(rows)


# --- metrics ---


def metrics_page(state: RunState) -> Metrics:
    """Return the metrics of the held-out split; a NotPreparedError while they are computed."""
    found = state.store.get("metrics")
    if found["split"] is None:
        raise OverLimitError(f"{state.name}: no split is held out, so nothing was measured")
    calibration, reliability = calibration_of(state.run), found["reliability"]
    return {
        "run": state.summary(),
        "split": found["split"],
        "num_triples": found["num_triples"],
        "both": _metric_values(found["both"], found["interval_95"]),
        "head": _metric_values(found["head"], {}),
        "tail": _metric_values(found["tail"], {}),
        "by_category": [
            {"category": name, "num_triples": one["num_triples"], "metrics": _metric_values(one["both"], {})}
            for name, one in found["by_category"].items()
        ],
        "reliability": [
            {"probability": p, "true": true, "num_answers": num} for p, true, num in reliability.get("bins", [])
        ],
        "reliability_note": reliability.get("note"),
        "base_rate": None if calibration is None else calibration.base_rate,
    }


def _metric_values(values: Mapping[str, float], intervals: Mapping[str, Any]) -> list[MetricValue]:
    """Return metrics as people read them, in the order of their declaration."""
    return [
        {
            "key": key,
            "label": metric.label,
            "value": values[key],
            "interval": tuple(intervals[key]) if key in intervals else None,
            "higher_is_better": metric.higher_is_better,
        }
        for key, metric in METRICS.items()
        if key in values
    ]
