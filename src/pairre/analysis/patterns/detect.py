"""Find patterns in training triples, and compare two lists of patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pairre.analysis.patterns.agreement import KINDS, Kind, Pattern
from pairre.graph import Graph
from pairre.rules.mine import mine

MIN_CONFIDENCE = 0.7  # of the rule that stands for a pattern
MIN_SUPPORT = 5  # triples that the rule predicts correctly
MIN_COVERAGE = 0.1  # fraction of the triples of its conclusion that the rule predicts


def patterns_in_triples(
    graph: Graph, min_confidence: float = MIN_CONFIDENCE, progress: Callable[[float], None] | None = None
) -> set[Pattern]:
    """Return the patterns that hold in the training triples, each with the confidence of its rule.

    As in a search of vectors, an inverse pair is listed once, and so are two relations that imply each other, with the
    better of their two rules. A composition that implies one of its own relations is left out.
    """
    relation_ids = {name: i for i, name in enumerate(graph.relations.name_list(range(graph.num_relations)))}
    found: dict[Pattern, Pattern] = {}
    rules = mine(
        graph,
        KINDS,
        min_support=MIN_SUPPORT,
        min_confidence=min_confidence,
        min_head_coverage=MIN_COVERAGE,
        progress=progress,
    )
    for rule in rules:  # the most confident first
        body, conclusion = tuple(relation_ids[name] for name in rule.body), relation_ids[rule.conclusion]
        if rule.kind == "symmetry":
            pattern = Pattern("symmetry", body, rule.confidence)
        elif rule.kind == "inverse":
            pattern = Pattern("inverse", (min(*body, conclusion), max(*body, conclusion)), rule.confidence)
        elif conclusion in body or Pattern("subrelation", (conclusion, *body)) in found:
            continue
        else:
            pattern = Pattern("composition" if len(body) == 2 else "subrelation", (*body, conclusion), rule.confidence)
        found.setdefault(pattern, pattern)
    return set(found.values())


@dataclass(frozen=True)
class Comparison:
    """Counts that compare the found patterns of one kind with those that are taken as true."""

    found: int
    true: int
    both: int

    @property
    def precision(self) -> float | None:
        """The fraction of found patterns that are true, or None if nothing was found."""
        return self.both / self.found if self.found else None

    @property
    def recall(self) -> float | None:
        """The fraction of true patterns that were found, or None if nothing is true."""
        return self.both / self.true if self.true else None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {**asdict(self), "precision": self.precision, "recall": self.recall}


def compare(found: Iterable[Pattern], true: Iterable[Pattern]) -> dict[Kind, Comparison]:
    """Return precision and recall of the found patterns, by kind."""
    found, true = set(found), set(true)
    return {
        kind: Comparison(*(sum(p.kind == kind for p in part) for part in (found, true, found & true))) for kind in KINDS
    }
