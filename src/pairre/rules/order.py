"""The order in which rows of relations are computed from each other when rules tie them: bodies before conclusions."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from pairre.rules.file import Rule
from pairre.support.errors import RuleError


class Order(NamedTuple):
    """Positions of tied relations, level by level: a position depends on positions of earlier levels only."""

    position: dict[str, int]  # relation → position; equivalent relations have the same one
    stored: list[str]  # position → the relation whose stored row it is computed from
    first: list[int]  # position of the first level → the first position that it is connected with by conclusions
    bodies: list[list[list[int]]]  # later level, position → positions that imply it, padded to equal length


def tie_order(rules: Sequence[Rule]) -> Order:
    """Return the order of subrelations and equivalences; a RuleError names subrelations that form a cycle."""
    equivalent: dict[str, str] = {}
    for rule in rules:
        one, other = _root(equivalent, rule.body[0]), _root(equivalent, rule.conclusion)
        if rule.kind == "equivalence":
            equivalent[other] = one
    group_of = {name: _root(equivalent, name) for name in equivalent}
    bodies: dict[str, list[str]] = {name: [] for name in group_of.values()}
    connected: dict[str, str] = {}
    for rule in rules:
        body, conclusion = group_of[rule.body[0]], group_of[rule.conclusion]
        if body != conclusion and body not in bodies[conclusion]:
            bodies[conclusion].append(body)
            connected[_root(connected, conclusion)] = _root(connected, body)
    levels = _levels(bodies, group_of)
    stored = [name for level in levels for name in level]
    position = {name: i for i, name in enumerate(stored)}
    first: dict[str, int] = {}
    for name in levels[0]:
        first.setdefault(_root(connected, name), position[name])
    return Order(
        {name: position[group] for name, group in group_of.items()},
        stored,
        [first[_root(connected, name)] for name in levels[0]],
        [_padded([[position[body] for body in bodies[name]] for name in level]) for level in levels[1:]],
    )


def _root(parent: dict[str, str], name: str) -> str:
    """Return the representative of a name in a union-find forest; a new name represents itself."""
    while parent.setdefault(name, name) != name:
        name = parent[name]
    return name


def _levels(bodies: dict[str, list[str]], group_of: dict[str, str]) -> list[tuple[str, ...]]:
    """Return groups of relations so that all bodies of a group are in earlier levels."""
    sorter = TopologicalSorter(bodies)
    try:
        sorter.prepare()
    except CycleError as error:
        names = [" ⇔ ".join(name for name, group in group_of.items() if group == one) for one in error.args[1]]
        raise RuleError(
            f"rules that go round in a circle cannot be tied: {' → '.join(names)}; "
            "if these relations are the same, write a rule of kind equivalence"
        ) from None
    levels = []
    while sorter.is_active():
        levels.append(sorter.get_ready())
        sorter.done(*levels[-1])
    return levels


def _padded(lists: list[list[int]]) -> list[list[int]]:
    """Return the lists with their first element repeated at the end, so that all have the same length."""
    longest = max(map(len, lists))
    return [[*each, *[each[0]] * (longest - len(each))] for each in lists]
