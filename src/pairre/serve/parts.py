"""What takes too long for a request: metrics of held-out triples, relation patterns, and the discovered links.

Each part is computed once, in the background, and kept in a file of the cache, from which every process reads it and
which a restart finds. A part that is not there yet is a NotPreparedError that says how far it is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from pairre.analysis.patterns import KINDS, agreement, paired_vectors, patterns_in_triples, search_frequent
from pairre.analysis.report.answers import reliability, worst_errors
from pairre.evaluation import calibration_of
from pairre.evaluation.evaluate import summarise_groups, triples_by_category, triples_by_relation
from pairre.evaluation.metrics import bootstrap, summarise
from pairre.evaluation.ranking import SIDES, rank_both_sides
from pairre.graph import Split
from pairre.inference.discover import discover_ids
from pairre.inference.search_state import describe_search
from pairre.inference.top_links import Order
from pairre.runs import Run
from pairre.serve.contract import NotPreparedError
from pairre.serve.schemas import Part, Preparing
from pairre.support.errors import PairREError
from pairre.support.files import cache_folder, read_checked_json, write_checked_json
from pairre.support.tensors import read_tensors, write_tensors

PARTS: tuple[Part, ...] = get_args(Part)
MAX_LINKS = 1 << 21  # that are kept of all relations
MAX_LINKS_PER_RELATION, MIN_LINKS_PER_RELATION = 1000, 20
NUM_ERRORS = 5  # of a relation
_FORMAT = 1  # of the stored parts
_WRITE_EVERY = 1.0  # seconds between two notes of how far a part is
_MAX_PATTERNS = 20_000
Progress = Callable[[float], None]  # called with the fraction of the work done since the last call


@dataclass(eq=False)
class Store:
    """The parts of a run as far as they are computed: in memory, and in files that other processes see."""

    folder: Path | None
    _values: dict[Part, Any] = field(default_factory=dict)
    _done: dict[Part, float] = field(default_factory=dict)

    @classmethod
    def in_memory(cls) -> Store:
        """Return a store that nobody else sees."""
        return cls(None)

    @classmethod
    def of(cls, run: Run) -> Store:
        """Return the store of a run in the cache, by what its answers depend on; in memory if there is no cache."""
        folder = cache_folder() / "serve" / describe_search(run, Order(calibration_of(run)), "serve", _FORMAT)[:32]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return cls.in_memory()
        return cls(folder)

    def get(self, part: Part) -> Any:
        """Return a part, or raise a NotPreparedError that says how much of it is done."""
        if part not in self._values and self._file(part, ".done").exists():
            with contextlib.suppress(PairREError, OSError):
                self._values[part] = self._read(part)
        if part not in self._values:
            raise NotPreparedError(f"{part}: still being computed, {self.done(part):.0%} done", retry_after=2.0)
        return self._values[part]

    def find(self, part: Part) -> Any | None:
        """Return a part, or None while it is not there."""
        try:
            return self.get(part)
        except NotPreparedError:
            return None

    def missing(self) -> list[Preparing]:
        """Return the parts that are not there yet."""
        return [{"part": part, "done": self.done(part)} for part in PARTS if self.find(part) is None]

    def done(self, part: Part) -> float:
        """Return which fraction of a part is computed."""
        if self.folder is not None and part not in self._done:
            with contextlib.suppress(OSError, ValueError):
                return min(1.0, max(0.0, float(self._file(part, ".progress").read_text(encoding="ascii"))))
        return self._done.get(part, 0.0)

    def note(self, part: Part, done: float) -> None:
        """Keep how much of a part is computed, for every process."""
        self._done[part] = min(1.0, done)
        if self.folder is not None:
            with contextlib.suppress(OSError):
                self._file(part, ".progress").write_text(f"{done:.4f}", encoding="ascii")

    def put(self, part: Part, value: Any) -> None:
        """Keep a part, in a file if there is a folder that can be written to."""
        self._values[part] = value
        if self.folder is not None:
            with contextlib.suppress(PairREError, OSError):
                if part == "links":
                    write_tensors(self._file(part, ".safetensors"), value)
                else:
                    write_checked_json(self._file(part, ".json"), value)
                self._file(part, ".done").touch()

    def _read(self, part: Part) -> Any:
        if part == "links":
            return read_tensors(self._file(part, ".safetensors"))[0]
        return read_checked_json(self._file(part, ".json"))

    def _file(self, part: Part, ending: str) -> Path:
        return (self.folder or Path("/nonexistent")) / f"{part}{ending}"


def prepare(run: Run, store: Store, stopped: Callable[[], bool] = lambda: False) -> None:
    """Compute every part that the store lacks, one after the other, and put it there; end early when stopped."""
    for part in PARTS:
        if store.find(part) is None and not stopped():
            with contextlib.suppress(_StoppedError):
                store.put(part, _COMPUTE[part](run, _progress(store, part, stopped)))


class _StoppedError(PairREError):
    """The server ends while a part is computed."""


def _progress(store: Store, part: Part, stopped: Callable[[], bool]) -> Progress:
    done, noted = 0.0, 0.0

    def advance(fraction: float) -> None:
        nonlocal done, noted
        if stopped():
            raise _StoppedError("stopped")
        done += fraction
        if time.monotonic() - noted >= _WRITE_EVERY:
            noted = time.monotonic()
            store.note(part, done)

    advance(0.0)
    return advance


def held_out(run: Run) -> Split | None:
    """Return the split that metrics are measured on: test, else valid, else none."""
    return next((split for split in ("test", "valid") if len(run.graph.split(split))), None)


def _metrics(run: Run, progress: Progress) -> dict[str, Any]:
    """Return metrics of the held-out split, of its relations and categories, its worst errors, and reliability."""
    graph, split = run.graph, held_out(run)
    if split is None:
        return {"split": None}
    triples = graph.split(split)
    total = 2 * len(triples) * graph.num_entities
    ranks = rank_both_sides(
        run.model, triples, graph.known, lambda n: progress(0.9 * n / total), graph.fixed_candidates(split)
    )
    groups = triples_by_relation(graph, triples)
    by_relation = summarise_groups(ranks, groups)
    for name, rows in groups.items():
        chosen = {side: ranks[side].select(rows) for side in SIDES}
        by_relation[name] |= {
            "interval_95": bootstrap(chosen),
            "errors": worst_errors(run, split, ranks, rows, NUM_ERRORS),
        }
        progress(0.1 / len(groups))
    calibration = calibration_of(run)
    return {
        "split": split,
        "num_triples": len(triples),
        **summarise(ranks),
        "interval_95": bootstrap(ranks),
        "by_category": summarise_groups(ranks, triples_by_category(graph, triples)),
        "by_relation": by_relation,
        "reliability": reliability(run, split, calibration) if calibration is not None else {},
    }


def _patterns(run: Run, progress: Progress) -> dict[str, Any]:
    """Return the patterns that train triples or relation vectors show: kind, relation ids, confidence, agreement."""
    graph, vectors = run.graph, paired_vectors(run.model)
    confidence = {(p.kind, p.relations): p.score for p in patterns_in_triples(graph, progress=progress)}
    agreed = {}
    if vectors is not None:
        found = search_frequent(vectors, graph, max_patterns=_MAX_PATTERNS)
        agreed = {(p.kind, p.relations): p.score for patterns in found.values() for p in patterns}
        for kind in KINDS:
            missing = [key for key in confidence if key[0] == kind and key not in agreed]
            if missing:
                ids = torch.tensor([relations for _, relations in missing]).numpy()
                agreed |= dict(zip(missing, agreement(vectors, kind, ids).tolist(), strict=True))
    rows = [
        {"kind": key[0], "ids": list(key[1]), "confidence": confidence.get(key), "agreement": agreed.get(key)}
        for key in {**confidence, **agreed}
    ]
    return {"patterns": sorted(rows, key=lambda row: (-(row["confidence"] or 0), -(row["agreement"] or 0)))}


def links_per_relation(run: Run) -> int:
    """Return how many links of each relation are kept, so that the list of all relations is exact up to as many."""
    return min(MAX_LINKS_PER_RELATION, max(MIN_LINKS_PER_RELATION, MAX_LINKS // run.graph.num_relations))


def _links(run: Run, progress: Progress) -> dict[str, Tensor]:
    """Return the best new links of each relation, best first: `triples`, `scores` and `keys`, which order all."""
    found = discover_ids(run, k=links_per_relation(run), per_relation=True, progress=progress)
    return {
        "triples": found.triples.int().cpu().contiguous(),
        "scores": found.scores.float().cpu().contiguous(),
        "keys": found.keys.cpu().contiguous(),
    }


_COMPUTE: dict[Part, Callable[[Run, Progress], Any]] = {"metrics": _metrics, "patterns": _patterns, "links": _links}
