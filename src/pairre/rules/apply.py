"""Apply rules to the facts of a graph: what they imply that the graph lacks, and by which rules.

A fact that several rules imply has one confidence: by default the largest of theirs (`max`); with `noisy-or` it is
1 − Π (1 − confidence), as if the rules were independent pieces of evidence, which makes it too sure where they are not.

Rules are applied to some entities at a time, which are halved until what they imply together fits into memory. A rule
is a path of one or two relations, as in `measure.py`: relation R + r is the inverse of r, and 2R is the identity.
Walked backwards, a path leads from tails to heads.

N entities, R relations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import torch

from pairre.graph import Graph, Side
from pairre.graph.split import distinct
from pairre.rules.file import Rule
from pairre.rules.measure import Facts
from pairre.support.errors import RuleError
from pairre.support.table_files import table_file

Combine = Literal["max", "noisy-or"]
_MAX_PAIRS = 1 << 22  # pairs of a body that are held at a time, unless one head has more


@dataclass(frozen=True)
class Implied:
    """A fact that rules imply and the graph lacks, with the rules that imply it, most confident first."""

    rank: int
    head: str
    relation: str
    tail: str
    confidence: float
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class _Path:
    """A rule as a path of relations to its conclusion."""

    one: int
    two: int
    confidence: float
    rule: Rule


class RuleBook:
    """Rules and the facts that they are applied to; what they imply for any range of heads or for given triples."""

    def __init__(self, graph: Graph, rules: Iterable[Rule], triples: torch.Tensor, combine: Combine = "max") -> None:
        if combine not in get_args(Combine):
            raise RuleError(f"combine {combine!r}: one of {', '.join(get_args(Combine))} expected")
        self.graph, self.combine = graph, combine
        self.least = 0.0  # confidence that is of interest
        sizes = graph.num_entities, graph.num_relations
        self.facts = Facts.build(distinct(triples.numpy(), *sizes), *sizes)
        self.paths: dict[int, list[_Path]] = defaultdict(list)  # by conclusion
        for rule in rules:
            for conclusion, path in self._paths(rule):
                self.paths[conclusion].append(path)

    def _paths(self, rule: Rule) -> Iterator[tuple[int, _Path]]:
        """Yield the conclusion of a rule and its body as a path; an equivalence has two."""
        relations, num = self.graph.relations, self.graph.num_relations
        body, conclusion = [relations.id(name) for name in rule.body], relations.id(rule.conclusion)
        if rule.kind == "composition":
            yield conclusion, _Path(body[0], body[1], rule.confidence, rule)
            return
        inverse = num * (rule.kind in ("inverse", "symmetry"))
        yield conclusion, _Path(body[0] + inverse, 2 * num, rule.confidence, rule)
        if rule.kind == "equivalence":
            yield body[0], _Path(conclusion, 2 * num, rule.confidence, rule)

    def implied(
        self, conclusion: int, side: Side, anchors: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield anchors, answers on `side` and confidences of what rules imply for a relation, some anchors at a time.

        Anchors are entities on the other side, ascending. What is below `least` may be missing; facts are among the
        answers, too.
        """
        waiting = [anchors]
        while waiting:
            part = waiting.pop()
            paths = self.paths.get(conclusion, [])
            if self.combine == "max":  # then a rule that is not confident enough changes nothing
                paths = [path for path in paths if path.confidence >= self.least]
            steps = [self._first_steps(path, side, part) for path in paths]
            if sum(int(length.sum()) for *_, length in steps) > _MAX_PAIRS and len(part) > 1:
                waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
                continue
            pairs = [self._pairs(*step) for step in steps]
            keys = np.concatenate([np.empty(0, np.int64), *pairs])
            if len(keys):
                confidences = np.repeat([path.confidence for path in paths], [len(part) for part in pairs])
                keys, combined = self._combined(keys, confidences)
                yield *np.divmod(keys, self.graph.num_entities), combined

    def answers(
        self, relations: np.ndarray, anchors: np.ndarray, side: Side
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what rules answer on `side` to B queries, flat: which query, which entity, with which confidence."""
        rows, entities = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        confidences = [np.empty(0)]
        for relation in np.unique(relations):
            asked = np.flatnonzero(relations == relation)
            asked = asked[np.argsort(anchors[asked], kind="stable")]
            for anchor, answer, confidence in self.implied(int(relation), side, np.unique(anchors[asked])):
                # An anchor may be that of several queries.
                first = np.searchsorted(anchors[asked], anchor)
                times = np.searchsorted(anchors[asked], anchor, side="right") - first
                position = np.repeat(first - (np.cumsum(times) - times), times) + np.arange(int(times.sum()))
                rows.append(asked[position])
                entities.append(np.repeat(answer, times))
                confidences.append(np.repeat(confidence, times))
        return np.concatenate(rows), np.concatenate(entities), np.concatenate(confidences)

    def _first_steps(self, path: _Path, side: Side, anchors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the facts x → y of the first step from the anchors x: x, where the facts of y begin, and how many.

        The facts of y are those of the second step, in the order of `Facts`.
        """
        one, two = (path.one, path.two) if side == "tail" else (self._inverse(path.two), self._inverse(path.one))
        facts = self.facts
        start, stop = facts.start[one], facts.start[one + 1]
        heads = facts.head[start:stop]
        if len(anchors) and anchors[-1] - anchors[0] == len(anchors) - 1:  # a range
            low, high = np.searchsorted(heads, [anchors[0], anchors[-1] + 1])
            position = np.arange(start + low, start + high)
        else:
            low = np.searchsorted(heads, anchors)
            position = start + _ranges(low, np.searchsorted(heads, anchors, side="right") - low)
        start, stop = facts.start[two], facts.start[two + 1]
        heads, y = facts.head[start:stop], facts.tail[position]
        begin = np.searchsorted(heads, y)
        return facts.head[position], start + begin, np.searchsorted(heads, y, side="right") - begin

    def _inverse(self, relation: int) -> int:
        num = self.graph.num_relations
        return relation if relation == 2 * num else (relation + num) % (2 * num)

    def _pairs(self, x: np.ndarray, begin: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Return the distinct pairs (x, z) of a path, as x · N + z."""
        z = self.facts.tail[_ranges(begin, length)]
        return np.unique(np.repeat(x, length).astype(np.int64) * self.graph.num_entities + z)

    def _combined(self, keys: np.ndarray, confidences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each key once, ascending, with the confidence of all rules that imply it."""
        order = np.argsort(keys, kind="stable")
        keys, confidences = keys[order], confidences[order]
        starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
        if self.combine == "max":
            return keys[starts], np.maximum.reduceat(confidences, starts)
        with np.errstate(divide="ignore"):  # a confidence of 1
            return keys[starts], -np.expm1(np.add.reduceat(np.log1p(-confidences), starts))

    def firing(self, head: int, conclusion: int, tail: int) -> list[Rule]:
        """Return the rules that imply a triple, most confident first."""
        fired = []
        for path in self.paths.get(conclusion, []):
            _, begin, length = self._first_steps(path, "tail", np.array([head]))
            if tail in self.facts.tail[_ranges(begin, length)]:
                fired.append(path.rule)
        return sorted(fired, key=lambda rule: -rule.confidence)


def apply_rules(
    graph: Graph,
    rules: Sequence[Rule],
    *,
    k: int = 1000,
    min_confidence: float = 0.0,
    combine: Combine = "max",
    progress: Callable[[float], None] | None = None,
) -> list[Implied]:
    """Return the k most confident facts that rules imply and no split of the graph has, the most confident first.

    The facts of all splits are what rules are applied to. An entity is not related to itself unless train has such a
    triple of the relation. Facts that are equally confident come in the order of ids. `progress` is called with the
    fraction of the work done since its last call.
    """
    if k < 1:
        raise RuleError(f"k must be 1 or more, not {k}")
    if not 0 <= min_confidence <= 1:
        raise RuleError(f"min_confidence {min_confidence:g}: a number from 0 to 1 expected")
    book = RuleBook(graph, rules, torch.cat([graph.train, graph.valid, graph.test]), combine)
    best, confidence = np.empty((0, 3), np.int64), np.empty(0)
    book.least = min_confidence
    for conclusion in sorted(book.paths):
        for heads, tails, found in book.implied(conclusion, "tail", np.arange(graph.num_entities)):
            triples = np.stack([heads, np.full_like(heads, conclusion), tails], 1)[found >= book.least]
            kept = _missing(graph, triples)
            best = np.concatenate([best, triples[kept]])
            confidence = np.concatenate([confidence, found[found >= book.least][kept]])
            order = np.lexsort((best[:, 2], best[:, 0], best[:, 1], -confidence))[:k]
            best, confidence = best[order], confidence[order]
            if len(best) == k:
                book.least = float(confidence[-1])
        if progress is not None:
            progress(1 / len(book.paths))
    names = graph.names(torch.from_numpy(best))
    rows = zip(best.tolist(), names, confidence.tolist(), strict=True)
    return [Implied(n, *name, c, tuple(book.firing(*ids))) for n, (ids, name, c) in enumerate(rows, start=1)]


def _ranges(begin: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Return the numbers of all ranges, one after another."""
    skipped = np.cumsum(length) - length
    numbers: np.ndarray = np.arange(int(length.sum())) + np.repeat(begin - skipped, length)
    return numbers


def _missing(graph: Graph, triples: np.ndarray) -> np.ndarray:
    """Return which triples of one relation the graph lacks and may have."""
    ids = torch.from_numpy(triples)
    missing = ~graph.known.side("tail").contains(ids, ids[:, 2:])[:, 0]
    if len(ids) and not graph.domains.has_loops(int(ids[0, 1])):
        missing &= ids[:, 0] != ids[:, 2]
    return np.asarray(missing)


def write_implied(path: Path, facts: Sequence[Implied]) -> None:
    """Write facts that rules imply as CSV, TSV, JSON, JSON lines or Parquet, as the ending of the file says.

    The column `rules` lists the rules that imply a fact, each with its confidence, separated by "; ".
    """
    names = ("rank", "head", "relation", "tail", "confidence", "rules")
    types = (pa.int64(), pa.string(), pa.string(), pa.string(), pa.float64(), pa.string())
    schema = pa.schema(list(zip(names, types, strict=True)))
    rows = [
        {name: getattr(fact, name) for name in names[:-1]}
        | {"rules": "; ".join(f"{rule} [{rule.confidence:.3g}]" for rule in fact.rules)}
        for fact in facts
    ]
    with table_file(path, schema) as write:
        write(pa.Table.from_pylist(rows, schema))
