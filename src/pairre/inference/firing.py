"""Which rules conclude a triple, and the facts of train that make each of them fire."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from pairre.graph import Graph, Side
from pairre.graph.index import COLUMN
from pairre.rules import Rule
from pairre.rules.entity_rules import EntityRuleBook, FiringEntityRule

MOST_WAYS = 5  # in which a rule fires, that are listed
MOST_ENTITY_RULES = 5  # of those that name entities, which are many
LEAST_CONFIDENCE = 0.1  # of them


@dataclass(frozen=True)
class Fact:
    """A triple by name."""

    head: str
    relation: str
    tail: str


@dataclass(frozen=True)
class FiringRule:
    """A rule that concludes a triple, with the facts that make its body hold."""

    rule: str  # as a formula, with relations as people read them
    kind: str
    confidence: float
    support: int | None
    ways: list[tuple[Fact, ...]]  # each is one fact, or two by way of an entity between head and tail
    num_ways: int  # of which at most `MOST_WAYS` are listed


def firing_rules(graph: Graph, head: int, relation: int, tail: int, rules: Iterable[Rule]) -> list[FiringRule]:
    """Return those of the rules that conclude (head, relation, tail) from other facts of train, in their order."""
    conclusion, found = graph.relations[relation], []
    for rule in rules:
        bodies = [rule.body] if rule.conclusion == conclusion else []
        if rule.kind == "equivalence" and rule.body == (conclusion,):
            bodies.append((rule.conclusion,))
        for body in bodies:
            if ways := _ways(graph, head, relation, tail, rule.kind, body):
                named = [tuple(Fact(*names) for names in graph.names(torch.tensor(way))) for way in ways[:MOST_WAYS]]
                shown = {name: graph.show_relation(graph.relations.id(name)) for name in (*rule.body, rule.conclusion)}
                found.append(
                    FiringRule(rule.formula(shown), rule.kind, rule.confidence, rule.support, named, len(ways))
                )
    return found


def firing_entity_rules(graph: Graph, head: int, relation: int, tail: int) -> list[FiringRule]:
    """Return the surest rules that name entities and conclude a triple from other facts of train.

    There are none on a large graph, unless the run has such rules: the slots of all its facts would take too long.
    """
    if not EntityRuleBook.is_quick(graph):
        return []
    found = EntityRuleBook.of(graph).firing(head, relation, tail)
    sure = [rule for rule in found if rule.confidence >= LEAST_CONFIDENCE][:MOST_ENTITY_RULES]
    return [_named(graph, rule, (head, relation, tail)) for rule in sure]


def _named(graph: Graph, rule: FiringEntityRule, triple: tuple[int, int, int]) -> FiringRule:
    """Return a rule that names entities as people read it: born_in(x, Paris) ⇒ citizen_of(x, France)."""

    def show(head: int, relation: int, tail: int, x: int) -> str:
        names = ("x" if end == x else "y" if end < 0 else graph.show_entity(end) for end in (head, tail))
        return f"{graph.show_relation(relation)}({', '.join(names)})"

    inverted, relation = divmod(rule.relation, graph.num_relations)
    pair = (rule.other, rule.entity) if inverted else (rule.entity, rule.other)
    side: Side = "head" if inverted else "tail"
    query = torch.tensor([[pair[0], relation, pair[1]]])
    ways = query
    if rule.other < 0:
        others = graph.known_train.side(side).known(query)[1]
        ways = query.repeat(len(others), 1)
        ways[:, COLUMN[side]] = others
    ways = ways[(ways != torch.tensor(triple)).any(1)]
    named: list[tuple[Fact, ...]] = [(Fact(*names),) for names in graph.names(ways[:MOST_WAYS])]
    formula = f"{show(pair[0], relation, pair[1], rule.entity)} ⇒ {show(*triple, rule.entity)}"
    return FiringRule(formula, "entity", rule.confidence, rule.support, named, len(ways))


def _ways(
    graph: Graph, head: int, relation: int, tail: int, kind: str, body: tuple[str, ...]
) -> list[list[tuple[int, int, int]]]:
    """Return the lists of facts that make a body hold between head and tail, without the triple itself."""
    ids = [id for name in body if (id := graph.relations.find(name)) is not None]
    if len(ids) < len(body):
        return []
    first, last = ids[0], ids[-1]
    if kind == "composition":
        tails, heads = graph.known_train.side("tail"), graph.known_train.side("head")
        after = tails.known(torch.tensor([[head, first, 0]]))[1]
        before = heads.known(torch.tensor([[0, last, tail]]))[1]
        middle = after[torch.isin(after, before)].tolist()
        ways = [[(head, first, y), (y, last, tail)] for y in middle]
    else:
        pair = (tail, head) if kind in ("inverse", "symmetry") else (head, tail)
        fact = (pair[0], first, pair[1])
        known = graph.known_train.side("tail").contains(torch.tensor([fact]), torch.tensor([fact[2]]))
        ways = [[fact]] if bool(known) else []
    return [way for way in ways if (head, relation, tail) not in way]
