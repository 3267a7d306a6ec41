"""Mining: which rules the facts of train follow, counted exactly.

Measures are AMIE's (Galárraga et al., WWW 2013), over distinct pairs of entities:

- support: pairs of the body that are facts of the head relation;
- head coverage: support ÷ facts of the head relation;
- confidence: support ÷ pairs of the body;
- PCA confidence: support ÷ pairs of the body whose first entity has some fact of the head relation; or whose second
  has, where that relation is more inverse-functional (distinct tails ÷ facts) than functional (distinct heads ÷ facts).

Every pair counts, that of an entity with itself too, and the middle of a composition may be one of its ends.
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
from pairre.rules.measure import Facts, Least, Scratch, joins, measure
from pairre.support.errors import RuleError, suggest
from pairre.support.threads import parallel_for

_PIECES = 200  # of about equal work; progress is told after each


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
    """Every rule that train follows and that reaches all thresholds, the most confident first.

    That a relation implies itself is no rule, and one that implies its own inverse is a symmetry, not an inverse. Two
    relations that imply each other are one equivalence and no subrelations, if equivalences are asked for: it has the
    smaller of each measure, and its body is the relation with the smaller id.
    `progress` is told the share of the work done since its last call.
    """
    least = Least(int(min_support), float(min_head_coverage), float(min_confidence), float(min_pca_confidence))
    _check(kinds, least)
    num_entities, num_relations = graph.num_entities, graph.num_relations
    facts = Facts.of(distinct(graph.train.numpy(), num_entities, num_relations), num_entities, num_relations)
    rows = _measured(facts, least, _bodies(facts, least, kinds), progress or (lambda _: None))
    rules = _named(rows, np.diff(facts.start), graph.relations.name_list(range(num_relations)), kinds)
    return sorted(rules, key=lambda r: (-r.confidence, -(r.support or 0), KINDS.index(r.kind), r.body, r.conclusion))


def _check(kinds: Collection[str], least: Least) -> None:
    for kind in kinds:
        if kind not in KINDS:
            raise RuleError(f"unknown kind '{kind}'{suggest(kind, KINDS)} (known: {', '.join(KINDS)})")
    if least.support < 1:
        raise RuleError(f"min_support {least.support}: a whole number from 1 up expected")
    for name, value in zip(least._fields[1:], least[1:], strict=True):
        if not 0 <= value <= 1:
            raise RuleError(f"min_{name} {value:g}: a number from 0 to 1 expected")


def _bodies(facts: Facts, least: Least, kinds: Collection[str]) -> np.ndarray:
    """Bodies that some head may have enough support for, [B, 3]: two relations, and the paths through them."""
    num_relations = len(facts.by_tail)
    size = np.diff(facts.start)[:-1]
    single = np.stack([np.arange(len(size)), np.full(len(size), len(size)), size], axis=1)  # len(size) is the identity
    forth, back = np.split(single, 2)
    wanted = [single[:0]]
    if not {"subrelation", "equivalence"}.isdisjoint(kinds):
        wanted.append(forth[forth[:, 2] >= least.support])
    if not {"inverse", "symmetry"}.isdisjoint(kinds):
        wanted.append(back[back[:, 2] >= least.support])
    if "composition" in kinds:
        parallel_for(lambda *part: wanted.append(joins(facts, least, *part)), num_relations)
    return np.concatenate(wanted)


def _measured(facts: Facts, least: Least, bodies: np.ndarray, tell: Callable[[float], None]) -> list[list[int]]:
    """The rows of `measure` for all bodies, in any order."""
    if not len(bodies):
        return []
    done = np.cumsum(np.append(0, bodies[:, 2]))
    share = done / done[-1]
    edges = np.unique(np.searchsorted(share, np.linspace(0, 1, _PIECES + 1))).tolist()
    pieces = iter(list(pairwise(edges)))  # shared: whoever is free takes the next one
    relations = np.ascontiguousarray(bodies[:, :2])
    rows: list[list[int]] = []
    lock = threading.Lock()

    def some(*_: int) -> None:
        scratch = Scratch.of(len(facts.entity_start) - 1, len(facts.by_tail))
        for start, stop in pieces:
            found = measure(facts, scratch, least, relations[start:stop]).tolist()
            with lock:
                rows.extend(found)
                tell(float(share[stop] - share[start]))

    try:
        parallel_for(some, len(edges))
    finally:
        list(pieces)  # after an interrupt, nothing is left for the other threads
    return rows


def _named(rows: list[list[int]], sizes: np.ndarray, names: list[str], kinds: Collection[str]) -> Iterator[Rule]:
    """The rules of the wanted kinds, by name."""
    num_relations = len(names)
    subrelations: dict[tuple[int, int], Rule] = {}
    for one, two, head, support, num_pairs, num_pca in rows:
        kind: Kind = "composition" if two < num_relations else "subrelation" if one < num_relations else "inverse"
        if one == head + num_relations:
            kind = "symmetry"
        body = (names[one], names[two]) if kind == "composition" else (names[one % num_relations],)
        rule = Rule(
            body, names[head], kind, support / num_pairs, support / num_pca, support, support / int(sizes[head])
        )
        if kind == "subrelation":
            subrelations[one, head] = rule
        elif kind in kinds:
            yield rule
    for (one, head), rule in subrelations.items():
        back = subrelations.get((head, one)) if "equivalence" in kinds else None
        if back and one < head:
            yield _weaker(rule, back)
        elif not back and one != head and "subrelation" in kinds:
            yield rule


def _weaker(rule: Rule, back: Rule) -> Rule:
    """Two subrelations that are each other's converse as an equivalence, with the smaller of each measure."""
    measures = zip(astuple(rule)[3:], astuple(back)[3:], strict=True)
    return Rule(rule.body, rule.conclusion, "equivalence", *(min(pair) for pair in measures))
