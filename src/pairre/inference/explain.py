"""Why the model gives an answer: rules that conclude it, facts that it depends on, known facts of similar entities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from pairre.evaluation import calibration_of
from pairre.graph import SPLITS, Graph
from pairre.inference.firing import Fact, FiringRule, firing_entity_rules, firing_rules
from pairre.inference.neighbours import nearest_of
from pairre.models import require_all_rows
from pairre.rules import Rule, measure_pair, read_rules
from pairre.runs import Calibration, Run
from pairre.support.errors import PairREError

if TYPE_CHECKING:
    from pairre.inference.necessary import Answer, Dependence

MOST_RULES = 10


@dataclass(frozen=True)
class NecessaryFact:
    """A fact of train, and how the answer stands after its entity was refit without it."""

    fact: Fact
    of: Literal["head", "tail"]  # the end of the answer whose vector was refit
    fall: float  # of the log of the answer's share among the candidates, which orders the facts
    score: float
    rank: int
    probability: float | None


@dataclass(frozen=True)
class Refit:
    """How the answer stands after the vector of one of its ends was refit with all facts, and what was looked at."""

    score: float
    rank: int
    probability: float | None
    num_facts: int  # of the entity in train
    num_compared: int  # of these, by their gradients
    num_left_out: int  # of these, in turn, in a refit


@dataclass(frozen=True)
class SimilarFact:
    """A known fact of an entity that is similar to the head or the tail of the answer."""

    fact: Fact
    of: Literal["head", "tail"]
    similarity: float
    known: str  # the split that it is in


@dataclass(frozen=True)
class Explanation:
    """Why an answer is given."""

    fact: Fact
    side: Literal["head", "tail"]  # that was asked for
    score: float
    rank: int  # among plausible candidates that are not known
    probability: float | None
    base_rate: float | None  # what the probability is when nothing is known of a triple
    known: str | None
    rules: list[FiringRule]
    facts: list[NecessaryFact]
    refits: dict[str, Refit]  # "head" and "tail"
    similar: list[SimilarFact]
    shown: dict[str, str]  # name → label or short form, where there is one

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    def mentioned(self) -> Iterator[Fact]:
        """Yield the facts that the answer rests on, some perhaps twice."""
        yield from _mentioned(self.rules, self.facts, self.similar)


def explain(
    run: Run,
    head: str,
    relation: str,
    tail: str,
    *,
    side: Literal["head", "tail"] = "tail",
    k: int = 5,
    rules: str | Path | Iterable[Rule] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Explanation:
    """Return why the model gives `tail` as an answer to (head, relation, ?), or `head` to (?, relation, tail).

    It lists the rules that conclude the triple from other facts of train; the k facts without which the answer falls
    most, by a refit of the vector of the head or the tail without each; and the k nearest known facts of similar heads
    and tails. Without `rules`, those that train supports are measured, and the surest that name entities. `progress` is
    called with the fraction of the work done since its last call.

    >>> explain(run, "Toulouse", "located_in", "France").facts[0]
    """
    from pairre.inference.necessary import Answer  # it loads what training needs, which other answers do not wait for

    if side not in ("head", "tail"):
        raise PairREError(f"side {side!r}: unknown; one of head, tail")
    if k < 1:
        raise PairREError(f"k must be 1 or more, not {k}")
    require_all_rows(run.model.entities, "explain")
    graph = run.graph
    ids = graph.find_entity(head), graph.find_relation(relation), graph.find_entity(tail)
    given = read_rules(rules) if isinstance(rules, str | Path) else rules
    fired = firing_rules(graph, *ids, measure_pair(graph, *ids) if given is None else given)[:MOST_RULES]
    if given is None:
        fired += firing_entity_rules(graph, *ids)
    triple, calibration = torch.tensor(ids), calibration_of(run)
    answer, odds = Answer(run, triple, side), _Odds(calibration, triple[None])
    with torch.no_grad():
        score, rank = answer.stand(answer.rows()).at(0)
    if score != score or score in (float("inf"), float("-inf")):
        raise PairREError(f"{run.path or graph.name}: the score is not a finite number; the weights have diverged")
    facts, refits = _necessary(answer, k, odds, progress)
    similar = _similar_facts(run, ids, k)
    fact = Fact(*next(graph.names(triple[None])))
    return Explanation(
        fact,
        side,
        score,
        rank,
        odds.of(score),
        calibration.base_rate if calibration else None,
        _split_of(graph, ids),
        fired,
        facts,
        refits,
        similar,
        dict(_short_forms(graph, [fact, *_mentioned(fired, facts, similar)])),
    )


class _Odds:
    """Probabilities of scores that a triple [1, 3] may have, or None where nothing is calibrated for it."""

    def __init__(self, calibration: Calibration | None, triple: Tensor) -> None:
        self.calibration, self.triple = calibration, triple

    def of(self, score: float) -> float | None:
        """Return the probability of one score."""
        if self.calibration is None:
            return None
        return self.calibration.of_triples(torch.tensor([score]), self.triple)[0]


def _necessary(
    answer: Answer, k: int, odds: _Odds, progress: Callable[[float], None] | None
) -> tuple[list[NecessaryFact], dict[str, Refit]]:
    """Return the k facts without which the answer falls most, of both ends, and the refits they are compared with."""
    from pairre.inference.necessary import dependence

    facts: list[NecessaryFact] = []
    refits = {}
    for of in ("head", "tail"):
        found = dependence(answer, of, (lambda done: progress(done / 2)) if progress else None)
        (score, rank), most = found.refitted, len(found.facts)
        refits[of] = Refit(score, rank, odds.of(score), found.num_facts, found.num_compared, most)
        facts += _named(answer.run.graph, found, of, odds)
    needed = [fact for fact in facts if fact.fall > 0]
    return sorted(needed, key=lambda fact: -fact.fall)[:k], refits


def _named(graph: Graph, found: Dependence, of: Literal["head", "tail"], odds: _Odds) -> Iterator[NecessaryFact]:
    for i, names in enumerate(graph.names(found.facts)):
        score, rank = found.without.at(i)
        yield NecessaryFact(Fact(*names), of, float(found.fall[i]), score, rank, odds.of(score))


def _similar_facts(run: Run, ids: tuple[int, int, int], k: int) -> list[SimilarFact]:
    """Return the k nearest known facts that differ from a triple in the head or in the tail, the most similar first."""
    graph, query = run.graph, torch.tensor([ids])
    found: list[SimilarFact] = []
    ends: tuple[tuple[Literal["head", "tail"], int], ...] = (("head", 0), ("tail", 2))
    for of, column in ends:
        known = graph.known.side(of).known(query)[1]
        entities, similarity = nearest_of(run, ids[column], known, k)
        for entity, value in zip(entities.tolist(), similarity.tolist(), strict=True):
            triple = query[0].clone()
            triple[column] = entity
            fact = Fact(*next(graph.names(triple[None])))
            found.append(SimilarFact(fact, of, value, _split_of(graph, triple.tolist()) or ""))
    return sorted(found, key=lambda fact: -fact.similarity)[:k]


def _split_of(graph: Graph, ids: Iterable[int]) -> str | None:
    """Return the split that a triple is in, if any."""
    triple = torch.tensor(list(ids), dtype=torch.int32)
    return next((split for split in SPLITS if bool((graph.split(split) == triple).all(1).any())), None)


def _mentioned(
    rules: Iterable[FiringRule], facts: Iterable[NecessaryFact], similar: Iterable[SimilarFact]
) -> Iterator[Fact]:
    for rule in rules:
        for way in rule.ways:
            yield from way
    yield from (found.fact for found in facts)
    yield from (found.fact for found in similar)


def _short_forms(graph: Graph, facts: Iterable[Fact]) -> Iterator[tuple[str, str]]:
    """Yield (name, what a person reads) of the members of facts, where both differ."""
    members = {("entity", name) for fact in facts for name in (fact.head, fact.tail)}
    members |= {("relation", fact.relation) for fact in facts}
    for kind, name in sorted(members):
        if kind == "entity":
            shown = graph.show_entity(graph.entities.id(name))
        else:
            shown = graph.show_relation(graph.relations.id(name))
        if shown != name:
            yield name, shown
