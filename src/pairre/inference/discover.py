"""Discover missing triples: the most plausible ones of the whole graph, of all pairs that make sense for a relation.

Every relation is a query for the tails of each of its heads. The kernels hand back only the pairs that reach a
threshold, which rises as the list of the best fills up, so that memory holds a block of queries, a chunk of candidates
and the list, never all scores.

H heads and T tails of a relation, B queries of a block, N candidates of a chunk.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from pairre.evaluation.calibration import calibration_of
from pairre.graph import Graph
from pairre.inference.predict import Prediction
from pairre.inference.search_state import SearchState, describe_search
from pairre.inference.top_links import Order, TopLinks
from pairre.kernels import Collected, backend
from pairre.models import Model
from pairre.runs import Run
from pairre.support.errors import PairREError, suggest
from pairre.support.processes import Processes

Pairs = Literal["plausible", "observed", "all"]  # of a head and a tail that are considered for a relation
_MOST_FOUND = {"cpu": 1 << 20, "cuda": 1 << 22}  # pairs that one call of a kernel may hand back
_MAX_QUERY_FEATURES = {"cpu": 1 << 20, "cuda": 1 << 26}  # features of the queries of a block
_MAX_QUERIES = 1 << 18
_MAX_CANDIDATE_FEATURES = 1 << 25  # features of the candidates of a chunk, if that is more than so many:
_MIN_CANDIDATES = 1024
_GROWTH = 8  # of a block, while little is found in it
_SAVE_EVERY = 10.0  # seconds


def discover(
    run: Run,
    *,
    k: int = 1000,
    relations: Collection[str] | None = None,
    per_relation: bool = False,
    min_probability: float | None = None,
    pairs: Pairs = "plausible",
    state: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Prediction]:
    """Return the k most plausible triples that no split of the graph has, best first.

    `pairs` says which heads and tails are considered for a relation: the plausible ones of `graph.domains` on both
    sides; with "observed", of these the heads that the relation has in train, which is faster, but finds nothing of
    heads without any fact of it; or all entities. An entity is not linked to itself unless train has such a triple of
    the relation. A relation of which train has no triple is left out.

    Scores of different relations are not comparable. Links are ordered by the calibrated probability where the run has
    a validation split, else by score; links that are equal in it, by the order of ids in the graph. `per_relation`
    takes the best k of each relation, `relations` considers only these, and `min_probability` leaves out what is less
    probable.

    With `state`, progress is kept in that file every few seconds and at the end, and the same search goes on from
    there after an interruption. `progress` is called with the fraction of the work done since its last call.
    """
    search, best = _searched(run, k, relations, per_relation, min_probability, pairs, state, progress)
    return search.links(best)


def discover_ids(
    run: Run, *, k: int = 1000, per_relation: bool = False, progress: Callable[[float], None] | None = None
) -> TopLinks:
    """Return what `discover` does as ids, with the scores and the keys that order the links."""
    return _searched(run, k, None, per_relation, None, "plausible", None, progress)[1]


def _searched(
    run: Run,
    k: int,
    relations: Collection[str] | None,
    per_relation: bool,
    min_probability: float | None,
    pairs: Pairs,
    state: Path | None,
    progress: Callable[[float], None] | None,
) -> tuple[_Search, TopLinks]:
    """Return a search and what it found."""
    if k < 1:
        raise PairREError(f"k must be 1 or more, not {k}")
    if pairs not in get_args(Pairs):
        raise PairREError(
            f"pairs {pairs!r}: unknown{suggest(pairs, get_args(Pairs))}; one of {', '.join(get_args(Pairs))}"
        )
    search = _Search.of(run, k, relations, per_relation, min_probability, pairs, state)
    with torch.no_grad():
        return search, search.run_all(progress or (lambda _: None))


@dataclass
class _Search:
    run: Run
    relations: list[int]
    per_relation: bool
    pairs: Pairs
    floor: float  # of the keys of all links
    order: Order
    state: SearchState
    path: Path | None
    saved: float = 0.0  # when the state was saved last

    @classmethod
    def of(
        cls,
        run: Run,
        k: int,
        relations: Collection[str] | None,
        per_relation: bool,
        min_probability: float | None,
        pairs: Pairs,
        path: Path | None,
    ) -> _Search:
        """Return a search at its beginning, or where its state file says that it was."""
        graph, device = run.graph, run.model.device
        _refuse_diverged(run)
        ids = _learnt_relations(graph, relations)
        order, floor = Order(calibration_of(run)), -torch.inf
        if min_probability is not None:
            if not 0 <= min_probability < 1:
                raise PairREError(f"min_probability {min_probability:g}: a number from 0 up to below 1 expected")
            if order.calibration is None:
                raise PairREError(
                    f"{graph.name}: no validation split to fit probabilities on, so none can be asked for"
                )
            floor = float(torch.tensor(min_probability, dtype=torch.float64).logit())
        description = describe_search(run, order, ids, k, per_relation, floor, pairs)
        state = SearchState(description, TopLinks.empty(k, floor, device))
        if path is not None and path.exists():
            state.read(path)
            if run.model.processes and not run.model.processes.is_first:  # which goes on with all that was found
                state.best, state.done = TopLinks.empty(k, state.best.floor, device), []
        return cls(run, ids, per_relation, pairs, floor, order, state, path)

    def run_all(self, progress: Callable[[float], None]) -> TopLinks:
        """Search what is left, and return the best links."""
        state, sizes = self.state, [len(h) * len(t) for h, t in map(self._domain, self.relations)]
        whole = max(sum(sizes), 1)
        progress(sum(sizes[: state.relation]) / whole)
        while state.relation < len(self.relations):
            for num_pairs in self._search_relation(self.relations[state.relation]):
                progress(num_pairs / whole)
                self._save(after=_SAVE_EVERY)
            state.relation, state.chunk, state.head = state.relation + 1, 0, 0
            if self.per_relation:
                self._bring_together()
                state.finish_relation(self.floor)
        self._bring_together()
        self._save(after=0)
        found, processes = state.all_links(), self.run.model.processes
        return found if processes is None else replace(found, k=sys.maxsize).of_all(processes)

    def _bring_together(self) -> None:
        """Give the best links of all processes to the first, where several share the search."""
        if (processes := self.run.model.processes) is not None:
            best = self.state.best.of_all(processes)
            self.state.best = best if processes.is_first else TopLinks.empty(best.k, best.floor, best.keys.device)

    def _save(self, after: float) -> None:
        """Write the state, if the last time was so many seconds ago; of several processes the first does, for all."""
        processes, is_due = self.run.model.processes, time.monotonic() - self.saved >= after
        if self.path is None or not (is_due if processes is None else processes.any(processes.is_first and is_due)):
            return
        self._bring_together()
        if processes is None or processes.is_first:
            self.state.write(self.path)
        self.saved = time.monotonic()

    def _domain(self, relation: int) -> tuple[Tensor, Tensor]:
        """Return the heads and the tails that are considered for a relation."""
        heads, tails = considered_pairs(self.run.graph, relation, self.pairs)
        if self.order.calibration is None or self.floor == -torch.inf:
            return heads, tails
        # A least probability is asked for, and entities that came after the calibration have none.
        most = self.order.calibration.num_entities
        return heads[heads < most], tails[tails < most]

    def _search_relation(self, relation: int) -> Iterator[int]:
        """Put the best links of a relation into the state; yield the number of pairs of every block that is done."""
        state, model = self.state, self.run.model
        device = model.device
        heads, tails = (ids.to(device) for ids in self._domain(relation))
        chunk = max(_MIN_CANDIDATES, _MAX_CANDIDATE_FEATURES // model.stored["entity"].width)
        largest = max(1, min(_MAX_QUERIES, _MAX_QUERY_FEATURES[device.type] // model.dim))
        while state.chunk < len(tails):
            ids = tails[state.chunk : state.chunk + chunk]
            candidates = _Candidates(model, relation, ids)
            most = max(_MOST_FOUND[device.type], len(ids))
            size = most // len(ids)
            while state.head < len(heads):
                block = heads[state.head : state.head + min(size, largest)]
                least = self.order.least_score(state.best.floor, relation)
                found = candidates.collect(block, least, most)
                links = self._new_links(block, relation, candidates.ids, found)
                better = state.best.with_links(*links)
                total, floor = _greatest(model.processes, found.total, better.floor)
                if total <= most:
                    state.best, state.head = replace(better, floor=floor), state.head + len(block)
                    size = size * _GROWTH if 2 * _GROWTH * total < most else size
                    yield len(block) * len(ids)
                elif floor > state.best.floor:  # again, with the threshold that some of the pairs justify
                    state.best = replace(state.best, floor=floor)
                else:
                    size = max(1, len(block) // _GROWTH)
            state.chunk, state.head = state.chunk + chunk, 0

    def _new_links(
        self, heads: Tensor, relation: int, tails: Tensor, found: Collected
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return keys, scores and triples of the pairs found that the graph does not have."""
        index, device = self.run.graph.known.side("tail", heads.device), heads.device
        pairs = torch.stack([heads, torch.full_like(heads, relation), heads], 1)
        score, query, candidate = found.score, found.query, found.candidate
        enough = self.state.best.k + int(index.count(pairs).sum()) + len(heads)  # all of these but k may be left out
        if enough < len(score):
            kept = score >= score.topk(enough).values[-1]
            score, query, candidate = score[kept], query[kept], candidate[kept]
        triples = pairs[query]
        triples[:, 2] = tails[candidate]
        new = ~index.contains(triples, triples[:, 2:])[:, 0]
        if not self.run.graph.domains.has_loops(relation):
            new &= triples[:, 0] != triples[:, 2]
        score, triples = score[new], triples[new]
        keys = self.order.keys(score, torch.tensor(relation, device=device))
        return keys, score, triples

    def links(self, best: TopLinks) -> list[Prediction]:
        """Return links with names."""
        graph, calibration = self.run.graph, self.order.calibration
        scores, triples = best.scores.cpu(), best.triples.cpu()
        base_rate, probabilities = None, list[float | None]([None] * len(scores))
        if calibration is not None:
            probabilities, base_rate = calibration.of_triples(scores, triples), calibration.base_rate
        links = []
        rows = zip(graph.names(triples), graph.labels(triples), scores.tolist(), probabilities, strict=True)
        for rank, (names, labels, score, probability) in enumerate(rows, start=1):
            links.append(Prediction(rank, *names, score, None, probability, base_rate, *labels))
        return links


def _learnt_relations(graph: Graph, names: Collection[str] | None) -> list[int]:
    """Return the ids of the relations to search, all or the named ones; train must show them, or nothing is learnt."""
    in_train: list[int] = torch.unique(graph.train[:, 1]).tolist()
    if not names:
        return in_train
    ids = sorted({graph.find_relation(name) for name in names})
    if unseen := set(ids).difference(in_train):
        raise PairREError(f"relation '{graph.relations[min(unseen)]}': train has no triple of it, so nothing is learnt")
    return ids


def considered_pairs(graph: Graph, relation: int, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Return the ids of the heads and of the tails that are considered for a relation."""
    if pairs == "all":
        return (torch.arange(graph.num_entities),) * 2
    heads = graph.domains.observed if pairs == "observed" else graph.domains.plausible
    return heads(relation, "head"), graph.domains.plausible(relation, "tail")


def _greatest(processes: Processes | None, *numbers: float) -> list[float]:
    """Return the greatest that any process has of each number, so that all go on in the same way."""
    if processes is None:
        return list(numbers)
    greatest: list[float] = processes.maximum(torch.tensor(numbers, dtype=torch.float64)).tolist()
    return greatest


class _Candidates:
    """Those of a chunk of candidate tails of one relation that are held here, prepared for its queries."""

    def __init__(self, model: Model, relation: int, ids: Tensor) -> None:
        self.model, self.relation = model, torch.tensor(relation, device=ids.device)
        row = model.relation_rows(self.relation, "tail") if model.projects_entities else None
        first, rows = model.entities.gather_held(ids)
        self.ids = ids[first : first + len(rows)]
        self._rows = model.prepare_entities(rows, model.candidate_side["tail"], row)  # [N, D]
        self._scaled: Tensor | None = None

    def collect(self, heads: Tensor, least: float, most: int) -> Collected:
        """Return the pairs of a head and one of these tails with a score of at least `least`; see `collect_above`."""
        model = self.model
        triples = torch.stack([heads, self.relation.expand_as(heads), heads], 1)
        _, (q, w) = model.make_queries(triples, "tail")
        rows = self._rows
        if len(rows) == 0:
            nothing = heads.new_empty(0)
            return Collected(nothing, nothing, q.new_empty(0), 0)
        if w is not None and model.metric in ("l1", "l2") and bool((w == w[:1]).all()):
            # One scale for all queries: applied to the candidates once, a term of the sum is |q − c|.
            if self._scaled is None:
                self._scaled = rows * w[0]
            rows, w = self._scaled, None
        metric = model.metric or model.pair_score
        return backend(q.device.type).collect_above(metric, q, w, rows, least, most)


def _refuse_diverged(run: Run) -> None:
    """Raise a PairREError if a weight is not a finite number, because no order of the links means anything then."""
    parts = (rows for source in run.model.sources() for _, rows in source.chunks(1 << 16))
    diverged = not all(bool(part.isfinite().all()) for part in chain(parts, run.model.dense_weights()))
    if _greatest(run.model.processes, diverged)[0]:
        raise PairREError(
            f"{run.path or run.graph.name}: some weights are not finite numbers, so scores cannot be compared; "
            "the weights have diverged: train again with a smaller train.lr"
        )
