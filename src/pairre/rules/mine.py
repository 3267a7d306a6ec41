"""Rule mining: the rules that the facts of train support, with exact measures.

The measures are those of AMIE (Galárraga et al., WWW 2013), over distinct pairs of entities:

- support: pairs of the body that are facts of the conclusion;
- head coverage: support ÷ facts of the conclusion;
- confidence: support ÷ pairs of the body;
- PCA confidence: support ÷ pairs of the body whose first entity has a fact of the conclusion. The second entity takes
  the place of the first if the conclusion is more inverse-functional (distinct tails ÷ facts) than functional (distinct
  heads ÷ facts).

Every pair counts, including that of an entity with itself, and the middle of a path may be one of its ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import astuple
from itertools import pairwise

import numpy as np

from pairre.graph import Graph
from pairre.graph.split import distinct
from pairre.rules.file import KINDS, Kind, Rule
from pairre.rules.measure import Facts, Scratch, Thresholds, find_paths, measure
from pairre.support.errors import RuleError, suggest
from pairre.support.threads import parallel_for

_NUM_PIECES = 200  # pieces of about equal work; progress is reported after each


def mine(
    graph: Graph,
    kinds: Collection[str] = KINDS,
    *,
    min_support: int = 10,
    min_head_coverage: float = 0.01,
    min_confidence: float = 0.8,
    min_pca_confidence: float = 0.0,
    progress: Callable[[float], None] | None = None,
) -> list[Rule]:
    """Return every rule of the kinds in `kinds` that reaches all thresholds in train, the most confident first.

    A relation that implies itself is not a rule, and one that implies its own inverse is a symmetry, not an inverse. If
    `kinds` contains equivalences, two relations that imply each other are one equivalence instead of two subrelations.
    It has the smaller value of each measure, and its body is the relation with the smaller id.
    `progress` is called with the fraction of the work done since its last call.
    """
    thresholds = Thresholds(
        int(min_support), float(min_head_coverage), float(min_confidence), float(min_pca_confidence)
    )
    _check(kinds, thresholds)
    num_entities, num_relations = graph.num_entities, graph.num_relations
    facts = Facts.build(distinct(graph.train.numpy(), num_entities, num_relations), num_entities, num_relations)
    rows = _measure_all(facts, thresholds, _bodies(facts, thresholds, kinds), progress or (lambda _: None))
    rules = _to_rules(rows, np.diff(facts.start), graph.relations.name_list(range(num_relations)), kinds)
    return sorted(rules, key=_strength)


def measure_pair(
    graph: Graph, head: int, relation: int, tail: int, *, min_support: int = 2, min_confidence: float = 0.1
) -> list[Rule]:
    """Return the rules that conclude a relation and whose body holds in train between two entities, as `mine` does.

    Only these bodies are counted, which takes a moment where mining all takes minutes. Subrelations are listed as such,
    even if they are equivalences. The triple itself is not a fact of a body.
    """
    num_entities, num_relations = graph.num_entities, graph.num_relations
    known = distinct(graph.train.numpy(), num_entities, num_relations)
    others = known[(known != (head, relation, tail)).any(1)]
    out, into = others[others[:, 0] == head], others[others[:, 2] == tail]
    identity = 2 * num_relations
    bodies = {(int(r), identity) for _, r, end in out if end == tail}
    bodies |= {(int(r) + num_relations, identity) for _, r, end in others[others[:, 0] == tail] if end == head}
    second: dict[int, list[int]] = {}
    for start, r, _ in into:
        second.setdefault(int(start), []).append(int(r))
    bodies |= {(int(r), last) for _, r, middle in out for last in second.get(int(middle), ())}
    if not bodies:
        return []
    thresholds = Thresholds(min_support, 0.0, min_confidence, 0.0)
    facts = Facts.build(known, num_entities, num_relations)
    work = np.array([(*body, 1) for body in sorted(bodies)])
    rows = [row for row in _measure_all(facts, thresholds, work, lambda _: None) if row[2] == relation]
    names = graph.relations.name_list(range(num_relations))
    kinds = [kind for kind in KINDS if kind != "equivalence"]
    return sorted(_to_rules(rows, np.diff(facts.start), names, kinds), key=_strength)


def _strength(rule: Rule) -> tuple[float, int, int, tuple[str, ...], str]:
    """Return the key that sorts rules, the most confident first."""
    return -rule.confidence, -(rule.support or 0), KINDS.index(rule.kind), rule.body, rule.conclusion


def _check(kinds: Collection[str], thresholds: Thresholds) -> None:
    """Raise a RuleError for an unknown kind or a threshold out of range."""
    for kind in kinds:
        if kind not in KINDS:
            raise RuleError(f"unknown kind '{kind}'{suggest(kind, KINDS)} (known: {', '.join(KINDS)})")
    if thresholds.support < 1:
        raise RuleError(f"min_support {thresholds.support}: a whole number from 1 up expected")
    for name, value in zip(thresholds._fields[1:], thresholds[1:], strict=True):
        if not 0 <= value <= 1:
            raise RuleError(f"min_{name} {value:g}: a number from 0 to 1 expected")


def _bodies(facts: Facts, thresholds: Thresholds, kinds: Collection[str]) -> np.ndarray:
    """Return the bodies that may have enough support, [B, 3]: first and second relation, and number of paths."""
    num_relations = len(facts.pca_by_tail)
    size = np.diff(facts.start)[:-1]
    # Bodies of one relation: the second one is the identity, whose id is len(size).
    single = np.stack([np.arange(len(size)), np.full(len(size), len(size)), size], axis=1)
    forward, inverse = np.split(single, 2)
    bodies = [single[:0]]
    if not {"subrelation", "equivalence"}.isdisjoint(kinds):
        bodies.append(forward[forward[:, 2] >= thresholds.support])
    if not {"inverse", "symmetry"}.isdisjoint(kinds):
        bodies.append(inverse[inverse[:, 2] >= thresholds.support])
    if "composition" in kinds:
        parallel_for(lambda *part: bodies.append(find_paths(facts, thresholds, *part)), num_relations)
    return np.concatenate(bodies)


def _measure_all(
    facts: Facts, thresholds: Thresholds, bodies: np.ndarray, progress: Callable[[float], None]
) -> list[list[int]]:
    """Return the rows of `measure` for all bodies, in any order."""
    if not len(bodies):
        return []
    done = np.cumsum(np.append(0, bodies[:, 2]))
    fraction = done / done[-1]
    edges = np.unique(np.searchsorted(fraction, np.linspace(0, 1, _NUM_PIECES + 1))).tolist()
    pieces = iter(list(pairwise(edges)))  # shared by the threads: one that is free takes the next
    relations = np.ascontiguousarray(bodies[:, :2])
    rows: list[list[int]] = []
    lock = threading.Lock()

    def work(*_: int) -> None:
        scratch = Scratch.zeros(len(facts.entity_start) - 1, len(facts.pca_by_tail))
        for start, stop in pieces:
            found = measure(facts, scratch, thresholds, relations[start:stop]).tolist()
            with lock:
                rows.extend(found)
                progress(float(fraction[stop] - fraction[start]))

    try:
        parallel_for(work, len(edges))
    finally:
        list(pieces)  # after an interrupt, the other threads find no more pieces
    return rows


def _to_rules(rows: list[list[int]], sizes: np.ndarray, names: list[str], kinds: Collection[str]) -> Iterator[Rule]:
    """Yield the rules of the requested kinds with the names of their relations."""
    num_relations = len(names)
    subrelations: dict[tuple[int, int], Rule] = {}
    for one, two, conclusion, support, num_pairs, num_pca in rows:
        kind: Kind = "composition" if two < num_relations else "subrelation" if one < num_relations else "inverse"
        if one == conclusion + num_relations:
            kind = "symmetry"
        body = (names[one], names[two]) if kind == "composition" else (names[one % num_relations],)
        rule = Rule(
            body,
            names[conclusion],
            kind,
            confidence=support / num_pairs,
            pca_confidence=support / num_pca,
            support=support,
            head_coverage=support / int(sizes[conclusion]),
        )
        if kind == "subrelation":
            subrelations[one, conclusion] = rule
        elif kind in kinds:
            yield rule
    for (one, conclusion), rule in subrelations.items():
        converse = subrelations.get((conclusion, one)) if "equivalence" in kinds else None
        if converse and one < conclusion:
            yield _equivalence(rule, converse)
        elif not converse and one != conclusion and "subrelation" in kinds:
            yield rule


def _equivalence(rule: Rule, converse: Rule) -> Rule:
    """Return the equivalence of a subrelation and its converse, with the smaller value of each measure."""
    measures = zip(astuple(rule)[3:], astuple(converse)[3:], strict=True)
    return Rule(rule.body, rule.conclusion, "equivalence", *(min(pair) for pair in measures))
