"""Answer one query at a time from a prepared run: what does not depend on the query is computed once and kept.

`answer` in `answers.py` is made for many queries at once, and is the reference: results here have the same bits.
A query is answered by itself here, so that its answer does not depend on what else is asked at the time.

E entities, D features.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pairre.evaluation import calibration_of
from pairre.evaluation.ranking import SIDES
from pairre.graph import Side
from pairre.graph.index import COLUMN
from pairre.inference.answers import Answers, Choice, answer, not_finite
from pairre.kernels import backend
from pairre.kernels.cpu import CpuBackend
from pairre.kernels.cpu.best import NONE_KNOWN, BestOfQuery, best_of_query
from pairre.models import LocalRows, Model
from pairre.runs import Calibration, Run
from pairre.runs.calibration import VECTOR

MAX_ANSWERS = 256  # of a query
_MAX_RELATIONS = 1024  # whose rows are kept
_MAX_KEPT = 1 << 26  # numbers of the entity table of a run that is prepared for `answer_one`
_OTHER: dict[Side, Side] = {"head": "tail", "tail": "head"}
_Rows = Mapping[Side, np.ndarray]  # [E, D] float32: entities as candidates on each side


class Found(NamedTuple):
    """The answers to one query by id, best first; probabilities are None where the run has no calibration.

    One of them is None where it is about an entity that came after the calibration.
    """

    ids: list[int]
    scores: list[float]
    probabilities: list[float | None] | None
    num_implausible: int


def answer_one(run: Run, query: Tensor, choice: Choice) -> Answers:
    """Return the answers to one query [3], whose open member is −1."""
    triple: tuple[int, int, int] = tuple(query.tolist())
    prepared = _kept(run) if triple[1] >= 0 and choice.k <= MAX_ANSWERS else None
    if prepared is None:
        return answer(run, query[None], choice)
    [found] = prepared.answer([triple], choice)
    count = len(found.ids)
    triples = torch.where(query < 0, torch.tensor(found.ids, dtype=torch.int64)[:, None], query)
    calibration = prepared.run.calibration
    return Answers(
        query=torch.zeros(count, dtype=torch.int64),
        rank=torch.arange(1, count + 1),
        triples=triples,
        scores=torch.tensor(found.scores),
        probabilities=found.probabilities or [None] * count,
        base_rate=None if calibration is None else calibration.base_rate,
        split=run.graph.split_of(triples) if choice.known else torch.full((count,), -1, dtype=torch.int8),
        count=torch.tensor([count]),
        num_implausible=torch.tensor([found.num_implausible]),
    )


def _kept(run: Run) -> PreparedRun | None:
    """Return the prepared run that is kept with a run, or None if its table is too large or cannot be prepared.

    It is prepared again when the weights, the graph or the calibration are no longer those that it was made of.
    """
    model = run.model
    is_here = all(isinstance(source, LocalRows) for source in model.stored.values())
    if not is_here or model.num_entities * model.dim > _MAX_KEPT or not PreparedRun.can_prepare(run):
        return None
    kept: PreparedRun | None = run.prepared
    if kept is None or not kept.is_of(run):
        calibration_of(run)  # fits the probabilities if need be, and keeps them with the run
        kept = run.prepared = PreparedRun(replace(run), PreparedRun.prepare(run))  # of a copy: a cycle is freed late
    return kept


class PreparedRun:
    """A run whose candidates are prepared; `candidate_rows` are what `prepare` of the same run returned."""

    def __init__(self, run: Run, candidate_rows: _Rows) -> None:
        self.run, self._rows = run, candidate_rows
        self._curve: Curve | None = None
        self._versions = _versions(run)

    def is_of(self, run: Run) -> bool:
        """Return whether a run has the graph, the calibration and the weights that this one was prepared from."""
        mine = self.run
        same = run.graph is mine.graph and run.calibration is mine.calibration and run.model is mine.model
        return same and _versions(run) == self._versions

    @staticmethod
    def can_prepare(run: Run) -> bool:
        """Return whether candidates of this model are the same for every query, and scored by a kernel of the CPU."""
        model, device = run.model, run.model.device.type
        return isinstance(model.metric, str) and not model.projects_entities and isinstance(backend(device), CpuBackend)

    @staticmethod
    @torch.no_grad()
    def prepare(run: Run) -> dict[Side, np.ndarray]:
        """Return entities as candidates on each side; both are one array if the model makes no difference."""
        rows: dict[Side, np.ndarray] = {}
        for side in SIDES:
            parts = [chunk.numpy() for _, chunk in run.model.candidate_chunks(side, None)]
            rows[side] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if np.array_equal(rows["head"], rows["tail"]):
            rows["tail"] = rows["head"]
        return rows

    @torch.no_grad()
    def answer(self, queries: Sequence[tuple[int, int, int]], choice: Choice) -> list[Found]:
        """Return the answers to queries of a relation and one entity; the open member is −1, k at most MAX_ANSWERS."""
        found, curve = [], self._curve_now()
        for triple in queries:
            side: Side = "head" if triple[0] < 0 else "tail"
            query, scale = self._make_query(triple, side)
            best, num_implausible = self._best(triple, side, choice, query, scale)
            probabilities = None if curve is None else curve.of_answers(best.scores, triple, best.ids)
            found.append(Found(best.ids, best.scores, probabilities, num_implausible))
        return found

    def _make_query(self, triple: tuple[int, int, int], side: Side) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the query and the scale of a triple, [1, D] each, as `make_queries` of the model does."""
        model, relation = self.run.model, triple[1]
        if not self._has_anchors:
            _, (q, w) = model.make_queries(torch.tensor([triple]).clamp(min=0), side)
        else:
            anchor = triple[2 - COLUMN[side]]
            row = torch.from_numpy(self._rows[_OTHER[side]][anchor : anchor + 1])
            parts = self._relation_parts(relation, side)
            q, w = model.tail_query(row, parts) if side == "tail" else model.head_query(parts, row)
        return q.contiguous().numpy(), None if w is None else w.contiguous().numpy()

    @cached_property
    def _has_anchors(self) -> bool:
        """Whether a query is made of the given entity's row as a candidate of its own side, which is prepared."""
        return type(self.run.model).make_query is Model.make_query and not self.run.model.reciprocal

    @cached_property
    def _relation_parts(self) -> Callable[[int, Side], SimpleNamespace]:
        model = self.run.model

        def parts(relation: int, side: Side) -> SimpleNamespace:
            return model.parts("relation", model.relation_rows(torch.tensor([relation]), side))

        return lru_cache(_MAX_RELATIONS)(parts)

    def _best(
        self, triple: tuple[int, int, int], side: Side, choice: Choice, query: np.ndarray, scale: np.ndarray | None
    ) -> tuple[BestOfQuery, int]:
        """Return the answers to one query, and how many candidates were left out because they make no sense."""
        graph, metric = self.run.graph, self.run.model.metric
        assert isinstance(metric, str)
        relation, anchor = triple[1], triple[2 - COLUMN[side]]
        candidates = None if choice.entities is None else choice.entities.numpy()
        own, num_implausible = -1, 0
        if not choice.any:
            plausible = graph.domains.plausible(relation, side).numpy()
            num_all = graph.num_entities if candidates is None else len(candidates)
            candidates = plausible if candidates is None else plausible[np.isin(plausible, candidates)]
            num_implausible = num_all - len(candidates)
            if not graph.domains.has_loops(relation):
                own = anchor
                place = int(candidates.searchsorted(own))
                num_implausible += place < len(candidates) and bool(candidates[place] == own)
        if candidates is not None and len(candidates) == graph.num_entities:
            candidates = None
        known = NONE_KNOWN if choice.known else self._known[side].members(anchor, relation)
        best = best_of_query(
            metric, query, scale, self._rows[side], choice.k, candidates=candidates, known=known, own=own
        )
        if best.num_lost:
            raise not_finite(best.num_lost)
        return best, int(num_implausible)

    @cached_property
    def _known(self) -> dict[Side, _KnownMembers]:
        return {side: _KnownMembers(self.run, side) for side in SIDES}

    def _curve_now(self) -> Curve | None:
        """Return the curve of the run's calibration, which is fitted if there is none."""
        calibration = self.run.calibration
        if calibration is None and len(self.run.graph.valid):
            calibration = calibration_of(self.run)
        if calibration is not None and (self._curve is None or self._curve.calibration is not calibration):
            self._curve = Curve(calibration)
        return None if calibration is None else self._curve


def _versions(run: Run) -> list[int]:
    """Return numbers that change when weights of a run are written to."""
    return [weights._version for weights in run.model.parameters()]


class Curve:
    """A calibration for a few numbers of one relation: faster than with tensors, and the same bits."""

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self._offsets: list[float] = calibration.offsets.tolist()
        points = calibration.points.reshape(-1, 2)
        self._at: list[float] = points[:, 0].tolist()
        self._logits: list[float] = points[:, 1].tolist()

    def of_answers(
        self, scores: Sequence[float], query: tuple[int, int, int], ids: Sequence[int]
    ) -> list[float | None]:
        """Return the probabilities of the answers to a query, None for what `Calibration.covers` leaves out."""
        num, anchor = self.calibration.num_entities, max(query[0], query[2])
        if anchor >= num:
            return [None] * len(ids)
        return [p if i < num else None for p, i in zip(self.probabilities(scores, query[1]), ids, strict=True)]

    def probabilities(self, scores: Sequence[float], relation: int) -> list[float]:
        """Return what `Calibration.probability` returns."""
        slope, intercept = self.calibration.slope, self.calibration.intercept
        offset = self._offsets[relation] if relation < len(self._offsets) else 0.0  # of one that came after the fit
        logits = [slope * score + intercept + offset for score in scores]
        z = np.zeros(len(logits) + -len(logits) % VECTOR)  # see `sigmoid` of the calibration
        z[: len(logits)] = list(map(self._through, logits)) if self._at else logits
        values: list[float] = torch.from_numpy(z).sigmoid().numpy()[: len(logits)].tolist()
        return values

    def _through(self, z: float) -> float:
        """Return the line through the points, as the calibration draws it."""
        at, logits = self._at, self._logits
        inside = min(max(z, at[0]), at[-1])
        if len(at) == 1:
            return logits[0] + z - inside
        right = min(max(bisect_left(at, inside), 1), len(at) - 1)
        share = (inside - at[right - 1]) / (at[right] - at[right - 1])
        return logits[right - 1] + share * (logits[right] - logits[right - 1]) + (z - inside)


class _KnownMembers:
    """The known answers to queries of one side, looked up one query at a time."""

    def __init__(self, run: Run, side: Side) -> None:
        index = run.graph.known.side(side)
        self._keys, self._offsets, self._members = (t.numpy() for t in (index.pair_keys, index.offsets, index.members))
        self._num_second = index.num_second

    def members(self, anchor: int, relation: int) -> np.ndarray:
        """Return the ids, ascending int32, of the entities that complete a known triple."""
        key = anchor * self._num_second + relation
        place = int(self._keys.searchsorted(key))
        if place == len(self._keys) or self._keys[place] != key:
            return NONE_KNOWN
        return self._members[self._offsets[place] : self._offsets[place + 1]]
