"""Score given triples: score, rank on both sides, percentile, and whether the graph has them.

N triples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
import torch
from torch import Tensor

from pairre.evaluation import calibration_of
from pairre.evaluation.ranking import SIDES, ProgressCallback, rank
from pairre.graph import SPLITS, Layout, Side
from pairre.graph.lookup import FoundTriples, Rows, find_triples
from pairre.inference.answers import not_finite
from pairre.runs import Run
from pairre.support.errors import PairREError, suggest
from pairre.support.table_files import table_file

_BATCH = 1 << 16  # triples that are scored together
Sides = Literal["both", "head", "tail", "none"]


@dataclass(frozen=True)
class TripleScore:
    """What the model says of one triple.

    `tail_rank` is the rank of the tail among all entities that do not complete another known triple, ties counted half,
    and `tail_percentile` the share of these entities that score below it, in percent. The same holds for heads. `known`
    is the split that has the triple, if any. `probability` is that of an answer with this score being true, where a
    share `base_rate` of answers is; it is None for an entity that came with `extend`.
    """

    head: str
    relation: str
    tail: str
    score: float
    head_rank: float | None
    head_percentile: float | None
    tail_rank: float | None
    tail_percentile: float | None
    known: str | None
    probability: float | None
    base_rate: float | None


_TEXT = ("head", "relation", "tail", "known")
_SCHEMA = pa.schema(
    [(name, pa.string() if name in _TEXT else pa.float64()) for name in TripleScore.__dataclass_fields__]
)


def score(
    run: Run,
    triples: Rows,
    *,
    side: Sides = "both",
    layout: Layout | None = None,
    skip_unknown: bool = False,
    progress: ProgressCallback | None = None,
) -> list[TripleScore]:
    """Return what the model says of triples: rows of head, relation and tail by name, or a file.

    `side` says which ranks are computed, which takes most of the time. A name that the graph lacks is a GraphError that
    says in which row, or with `skip_unknown` its triple is left out. `progress` is called with the number of scores
    since its last call.

    >>> score(run, [("France", "borders", "Italy")])
    """
    if side not in get_args(Sides):
        known = get_args(Sides)
        raise PairREError(f"side: '{side}' is not one of {', '.join(known)}{suggest(str(side), known)}")
    found = find_triples(run.graph, triples, layout, skip_unknown=skip_unknown)
    return [scored for part in torch.split(found.triples, _BATCH) for scored in _scored(run, part, side, progress)]


def write_scores(
    run: Run, found: FoundTriples, out: Path, side: Sides = "both", progress: ProgressCallback | None = None
) -> None:
    """Write what `score` returns to a CSV, JSON or Parquet file, whole or not at all."""
    with table_file(out if run.writes else None, _SCHEMA) as write:
        for part in torch.split(found.triples, _BATCH):
            write(pa.Table.from_pylist([asdict(scored) for scored in _scored(run, part, side, progress)], _SCHEMA))


def num_scores(run: Run, found: FoundTriples, side: Sides) -> int:
    """Return how many scores `progress` will be told of."""
    return len(found.triples) * run.graph.num_entities * len(_sides(side))


def _sides(side: Sides) -> tuple[Side, ...]:
    return tuple(s for s in SIDES if side in ("both", s))


def _scored(run: Run, triples: Tensor, side: Sides, progress: ProgressCallback | None) -> Iterator[TripleScore]:
    """Yield what the model says of [N, 3] triples by id."""
    graph, model = run.graph, run.model
    with torch.no_grad():
        scores = model.score(triples.to(model.device)).float().cpu()
    if num_lost := int((~scores.isfinite()).sum()):
        raise not_finite(num_lost)
    columns: dict[str, list[float | None]] = {"score": scores.tolist()}
    for s in SIDES:
        columns |= dict.fromkeys((f"{s}_rank", f"{s}_percentile"), [None] * len(triples))
    for s in _sides(side):
        ranks = rank(model, triples, graph.known, s, progress)
        below = ranks.num_candidates - ranks.values()
        columns[f"{s}_rank"] = ranks.values().tolist()
        columns[f"{s}_percentile"] = (100 * below / (ranks.num_candidates - 1).clamp(min=1)).tolist()
    calibration = calibration_of(run)
    columns |= dict.fromkeys(("probability", "base_rate"), [None] * len(triples))
    if calibration is not None:
        columns["probability"] = calibration.of_triples(scores, triples)
        columns["base_rate"] = [calibration.base_rate] * len(triples)
    splits = [*SPLITS, None]
    known = [splits[number] for number in graph.split_of(triples).tolist()]
    for row, names in enumerate(graph.names(triples)):
        numbers = {name: column[row] for name, column in columns.items()}
        yield TripleScore(*names, **numbers, known=known[row])  # type: ignore[arg-type]
