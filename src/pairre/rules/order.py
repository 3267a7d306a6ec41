"""The order in which rules tie relations: each after those that imply it, equivalent ones as one."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from pairre.rules.file import Rule
from pairre.support.errors import RuleError


class Order(NamedTuple):
    """Places of tied relations, a level after the other: a place follows only from places of levels before its own."""

    place: dict[str, int]  # equivalent relations share one
    stored: list[str]  # by place: the relation whose stored row it is made of
    first: list[int]  # of the places of the first level: the first one with which it shares what they imply
    bodies: list[list[list[int]]]  # by later level and place: what implies it, repeated so that all are as long


def tie_order(rules: Sequence[Rule]) -> Order:
    """The order of subrelations and equivalences; subrelations that go round in a circle are refused."""
    same: dict[str, str] = {}
    for rule in rules:
        one, other = _root(same, rule.body[0]), _root(same, rule.conclusion)
        if rule.kind == "equivalence":
            same[other] = one
    together = {name: _root(same, name) for name in same}
    bodies: dict[str, list[str]] = {name: [] for name in together.values()}
    linked: dict[str, str] = {}
    for rule in rules:
        body, head = together[rule.body[0]], together[rule.conclusion]
        if body != head and body not in bodies[head]:
            bodies[head].append(body)
            linked[_root(linked, head)] = _root(linked, body)
    levels = _levels(bodies, together)
    stored = [name for level in levels for name in level]
    place = {name: i for i, name in enumerate(stored)}
    first: dict[str, int] = {}
    for name in levels[0]:
        first.setdefault(_root(linked, name), place[name])
    return Order(
        {name: place[group] for name, group in together.items()},
        stored,
        [first[_root(linked, name)] for name in levels[0]],
        [_filled([[place[body] for body in bodies[name]] for name in level]) for level in levels[1:]],
    )


def _root(parent: dict[str, str], name: str) -> str:
    """Who stands for all that were joined with a name."""
    while parent.setdefault(name, name) != name:
        name = parent[name]
    return name


def _levels(bodies: dict[str, list[str]], together: dict[str, str]) -> list[tuple[str, ...]]:
    sorter = TopologicalSorter(bodies)
    try:
        sorter.prepare()
    except CycleError as error:
        names = [" ⇔ ".join(name for name, group in together.items() if group == one) for one in error.args[1]]
        raise RuleError(
            f"rules that go round in a circle cannot be tied: {' → '.join(names)}; "
            "if these relations are the same, write a rule of kind equivalence"
        ) from None
    levels = []
    while sorter.is_active():
        levels.append(sorter.get_ready())
        sorter.done(*levels[-1])
    return levels


def _filled(lists: list[list[int]]) -> list[list[int]]:
    longest = max(map(len, lists))
    return [[*each, *[each[0]] * (longest - len(each))] for each in lists]
