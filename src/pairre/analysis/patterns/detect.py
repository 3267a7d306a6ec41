"""What the vectors say beside what the triples say, and beside what is known to be true."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pairre.analysis.patterns.agreement import KINDS, Kind, Pattern
from pairre.graph import Graph
from pairre.rules.mine import mine

CONFIDENCE = 0.7  # of a rule in the training triples, from which a pattern counts as there
SUPPORT = 5  # triples that a rule must foretell rightly
COVERAGE = 0.1  # share of the triples of its head that it must foretell


def patterns_in_triples(
    graph: Graph, confidence: float = CONFIDENCE, progress: Callable[[float], None] | None = None
) -> set[Pattern]:
    """The patterns that the training triples show, each with the confidence of its rule.

    As with vectors an inverse pair is given once, and so are two relations that imply each other, with the better of
    their two rules; a composition that implies one of its own relations is left out.
    """
    number = {name: i for i, name in enumerate(graph.relations.name_list(range(graph.num_relations)))}
    found: dict[Pattern, Pattern] = {}
    rules = mine(
        graph, KINDS, min_support=SUPPORT, min_confidence=confidence, min_head_coverage=COVERAGE, progress=progress
    )
    for rule in rules:  # the most confident first
        body, head = tuple(number[name] for name in rule.body), number[rule.conclusion]
        if rule.kind == "symmetry":
            pattern = Pattern("symmetry", body, rule.confidence)
        elif rule.kind == "inverse":
            pattern = Pattern("inverse", (min(*body, head), max(*body, head)), rule.confidence)
        elif head in body or Pattern("subrelation", (head, *body)) in found:
            continue
        else:
            pattern = Pattern("composition" if len(body) == 2 else "subrelation", (*body, head), rule.confidence)
        found.setdefault(pattern, pattern)
    return set(found.values())


@dataclass(frozen=True)
class Comparison:
    """How one list of patterns of a kind covers another that is taken as true."""

    found: int
    true: int
    both: int

    @property
    def precision(self) -> float | None:
        """The share of what was found that is true; none if nothing was found."""
        return self.both / self.found if self.found else None

    @property
    def recall(self) -> float | None:
        """The share of what is true that was found; none if nothing is true."""
        return self.both / self.true if self.true else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "precision": self.precision, "recall": self.recall}


def compare(found: Iterable[Pattern], true: Iterable[Pattern]) -> dict[Kind, Comparison]:
    """Precision and recall of what was found, kind by kind."""
    found, true = set(found), set(true)
    return {
        kind: Comparison(*(sum(p.kind == kind for p in part) for part in (found, true, found & true))) for kind in KINDS
    }
