"""What the bundled graph consists of: triples, category and patterns of each relation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from atlas_tables import COMPOSITIONS

Triple = tuple[str, str, str]
Pairs = dict[str, set[tuple[str, str]]]  # relation -> its (head, tail) pairs

N_SIDE = 1.5  # mean number of partners from which a side of a relation counts as N


def mentions(triples: Iterable[Triple]) -> Counter[str]:
    """Entity -> number of triples it is in."""
    return Counter(name for head, _, tail in triples for name in (head, tail))


def pairs_by_relation(triples: Iterable[Triple]) -> Pairs:
    """Relation -> its (head, tail) pairs."""
    pairs: Pairs = defaultdict(set)
    for head, relation, tail in triples:
        pairs[relation].add((head, tail))
    return dict(pairs)


def category(pairs: set[tuple[str, str]]) -> str:
    """`1-1`, `1-N`, `N-1` or `N-N`: a side is N from a mean of 1.5 partners (Bordes et al., 2013)."""
    heads_per_tail = len(pairs) / len({tail for _, tail in pairs})
    tails_per_head = len(pairs) / len({head for head, _ in pairs})
    return "-".join("N" if mean >= N_SIDE else "1" for mean in (heads_per_tail, tails_per_head))


def composition_rate(pairs: Pairs, first: str, then: str, result: str) -> tuple[int, int]:
    """How many of the pairs reached by two steps the third relation holds, and how many are reached."""
    onward: dict[str, set[str]] = defaultdict(set)
    for middle, tail in pairs[then]:
        onward[middle].add(tail)
    reached = {(head, tail) for head, middle in pairs[first] for tail in onward[middle]}
    return len(reached & pairs[result]), len(reached)


def patterns(pairs: Pairs, relation: str) -> list[str]:
    """Return what holds of every pair of a relation, then the compositions that lead to it."""
    own = pairs[relation]
    reverse = {(tail, head) for head, tail in own}
    others = {name: those for name, those in pairs.items() if name != relation}
    found = ["symmetric"] if reverse == own else []
    found += [f"inverse of {name}" for name, those in others.items() if reverse == those]
    found += [f"within {name}" for name, those in others.items() if own < those]
    found += [f"within the inverse of {name}" for name, those in others.items() if reverse < those]
    for first, then, result in COMPOSITIONS:
        if result == relation:
            hits, reached = composition_rate(pairs, first, then, result)
            found.append(f"{first} then {then}: {hits}/{reached}")
    return found


def print_summary(triples: list[Triple]) -> None:
    """One line a relation: count, category, patterns."""
    pairs = pairs_by_relation(triples)
    for relation in sorted(pairs):
        found = "; ".join(patterns(pairs, relation))
        print(f"{relation:18} {len(pairs[relation]):5}  {category(pairs[relation])}  {found}".rstrip())
    print(f"{len(triples)} triples, {len(mentions(triples))} entities, {len(pairs)} relations")
