"""Which rules conclude a triple, and the facts of train that make each of them fire."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from pairre.graph import Graph
from pairre.rules import Rule

MOST_WAYS = 5  # in which a rule fires, that are listed


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
