"""Lay out explanations and neighbours as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pairre.cli.tables import new_table
from pairre.support.terminal import Table
from pairre.support.text import visible

if TYPE_CHECKING:
    from pairre.graph import Graph
    from pairre.inference.explain import Explanation
    from pairre.inference.firing import Fact
    from pairre.inference.neighbours import Cluster, Neighbour, Pair


def explanation_tables(found: Explanation) -> list[Table | str]:
    """Return the answer, and a table or a line for each of the three kinds of reasons."""
    return [_answer_line(found), *_rules(found), *_facts(found), *_similar(found)]


def _fact(found: Explanation, fact: Fact) -> str:
    return " — ".join(found.shown.get(name, name) for name in (fact.head, fact.relation, fact.tail))


def _probability(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _answer_line(found: Explanation) -> str:
    parts = [f"score {found.score:.4f}", f"rank {found.rank:,} among plausible {found.side}s"]
    if found.probability is not None:
        parts.append(f"probability {found.probability:.3f} (base rate {found.base_rate:.3f})")
    parts.append(f"known, in {found.known}" if found.known else "not in the graph")
    return f"{_fact(found, found.fact)}: {', '.join(parts)}"


def _rules(found: Explanation) -> list[Table | str]:
    if not found.rules:
        return ["\nNo rule concludes it from other facts of train."]
    table = new_table("\nrules that conclude it", ["rule", "because"], ["confidence", "support"])
    for rule in found.rules:
        ways = [", ".join(_fact(found, fact) for fact in way) for way in rule.ways]
        more = [f"and {rule.num_ways - len(ways):,} more ways"] if rule.num_ways > len(ways) else []
        support = "" if rule.support is None else f"{rule.support:,}"
        for i, way in enumerate([*ways, *more]):
            cells = (rule.rule, way, f"{rule.confidence:.3f}", support) if i == 0 else ("", way, "", "")
            table.add_row(*cells)
    return [table]


def _facts(found: Explanation) -> list[Table | str]:
    lines: list[Table | str] = []
    calibrated = ["probability"] if found.probability is not None else []
    if found.facts:
        table = new_table(
            "\nfacts it depends on: the answer without each", ["", "fact"], ["rank", "score", *calibrated]
        )
        for side, refit in found.refits.items():
            cells = [f"{refit.rank:,}", f"{refit.score:.4f}", *([_probability(refit.probability)] * len(calibrated))]
            if refit.num_facts:
                table.add_row(side, "(with all facts)", *cells, style="dim")
            for fact in (fact for fact in found.facts if fact.of == side):
                cells = [f"{fact.rank:,}", f"{fact.score:.4f}", *([_probability(fact.probability)] * len(calibrated))]
                table.add_row("", _fact(found, fact.fact), *cells)
        lines.append(table)
    else:
        lines.append("\nIt depends on no single fact of its head or tail.")
    for side, refit in found.refits.items():
        if refit.num_left_out < refit.num_facts:
            drawn = "" if refit.num_compared == refit.num_facts else f"{refit.num_compared:,} drawn at random; "
            left_out = f"the {refit.num_left_out} with the strongest pull left out in turn"
            lines.append(f"{side}: {refit.num_facts:,} facts, {drawn}{left_out}")
    return lines


def _similar(found: Explanation) -> list[Table | str]:
    if not found.similar:
        return ["\nNo other known fact has the same relation and head, or relation and tail."]
    table = new_table("\nknown facts of similar entities", ["fact", "in place of"], ["similarity"])
    table.add_column("known")
    for one in found.similar:
        own = found.fact.head if one.of == "head" else found.fact.tail
        table.add_row(_fact(found, one.fact), found.shown.get(own, own), f"{one.similarity:.3f}", one.known)
    return [table]


def neighbours_table(found: Iterable[Neighbour], graph: Graph) -> Table:
    """Return the nearest entities, the most similar first."""
    table = new_table("", ["", "entity"], ["similarity"])
    for one in found:
        table.add_row(str(one.rank), _shown(graph, one.entity), f"{one.similarity:.3f}")
    return table


def duplicates_table(found: Sequence[Pair], graph: Graph) -> Table:
    """Return pairs of entities, the most similar first."""
    table = new_table(f"{len(found):,} pairs", ["entity", "other"], ["similarity"])
    for pair in found:
        table.add_row(_shown(graph, pair.entity), _shown(graph, pair.other), f"{pair.similarity:.3f}")
    return table


def clusters_table(found: Sequence[Cluster], graph: Graph, k: int) -> Table:
    """Return clusters, the largest first, with their k most typical entities."""
    table = new_table(f"{len(found):,} clusters", ["", "most typical"], ["entities", "similarity"])
    for group in found:
        typical = ", ".join(visible(_shown(graph, name)) for name in group.entities[:k])
        table.add_row(str(group.number), typical, f"{len(group.entities):,}", f"{group.similarity:.3f}")
    return table


def _shown(graph: Graph, name: str) -> str:
    return graph.show_entity(graph.entities.id(name))
