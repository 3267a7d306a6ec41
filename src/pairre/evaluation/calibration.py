"""Turn scores into probabilities: a logistic curve over the best answers to the queries of the validation split.

What a probability means depends on the triples that it speaks about. Here they are the answers that people see: the ten
best new ones to each query of the validation split (`answers.py`), known facts left out. One that is in the
validation split is true, any other counts as false. The share of true ones is the base rate. A graph lacks facts, so
the probability is a careful one.

With a `base_rate` P, or with triples that are known to be false, the probability speaks about triples of which a share
P is true: true and false ones are weighted to these shares. More candidates of each query then stand for false ones,
because among the very best ones are facts that the graph lacks.

`logistic.py` fits the curve. The offsets of relations are shrunk to 0, so that one with few answers has the curve of
all. The slope is the same for all and above 0, so that the order of answers never changes.

N triples.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pairre.evaluation.answers import JudgedAnswers, best_answers
from pairre.evaluation.logistic import fit_curve
from pairre.evaluation.ranking import ProgressCallback
from pairre.graph import Graph, Layout
from pairre.graph.lookup import Rows, find_triples
from pairre.runs import Calibration, Run, RunFolder
from pairre.support.errors import PairREError

NUM_ANSWERS = 10  # of a query, as `predict` gives them
NUM_CANDIDATES = 100  # of a query, where a base rate is given; chosen on the false triples of CoDEx-S for validation
MAX_UNASKED = 5_000_000  # triples of train in a graph whose runs are calibrated without being asked
_SCORED_AT_ONCE = 1 << 12  # given triples


def calibration_of(run: Run, progress: ProgressCallback | None = None) -> Calibration | None:
    """Return the calibration of a run: as stored, else fitted now and kept in memory; None without a validation split.

    It is also None where no query of the validation split has a candidate, and for a graph with so many triples
    that only `calibrate` fits them, because finding out which answers make sense takes long. `progress` is called with
    the number of scores since its last call.
    """
    if run.calibration is None and len(run.graph.valid) and not is_huge(run.graph):
        run.calibration = _fit(run, None, None, progress)
    return run.calibration


def is_huge(graph: Graph) -> bool:
    """Return whether the probabilities of runs on a graph are only fitted when somebody asks for it."""
    return len(graph.train) > MAX_UNASKED


def calibrate(
    run: Run,
    *,
    base_rate: float | None = None,
    negatives: Tensor | Rows | None = None,
    layout: Layout | None = None,
    progress: ProgressCallback | None = None,
) -> Calibration:
    """Fit the probabilities of a run on its validation split, store them with the run, and return them.

    Without `base_rate`, it is the share of true triples among those that the curve is fitted on. `negatives` are a file
    of triples, rows of names or ids [N, 3]: triples that are known to be false and as plausible as those of the
    validation split. They are better than the unknown answers that are otherwise taken for false. A run without a
    folder keeps the curve in memory. `progress` is called with the number of scores since its last call.
    """
    if base_rate is not None and not 0 < base_rate < 1:
        raise PairREError(f"base rate {base_rate:g}: a number between 0 and 1 expected")
    if len(run.graph.valid) == 0:
        raise PairREError(f"{run.graph.name}: no validation split, which probabilities are fitted on")
    if negatives is not None and not isinstance(negatives, Tensor):
        negatives = find_triples(run.graph, negatives, layout).triples
    fitted = _fit(run, base_rate, negatives, progress)
    if fitted is None:
        raise PairREError(f"{run.graph.name}: no query of the validation split has a candidate to fit on")
    run.calibration = fitted
    if run.path is not None:
        RunFolder.open(run.path).save_calibration(fitted)
    return fitted


def describe_calibration(calibration: Calibration) -> str:
    """Return in words what a probability refers to; it stands beside every list of probabilities."""
    what = "given triples" if calibration.negatives == "given" else "answers to queries of the validation split"
    counts = f"{calibration.num_true:,} true and {calibration.num_false:,} false {what}"
    return f"Probabilities refer to a base rate of {calibration.base_rate:.3g}, fitted on {counts}."


def _fit(
    run: Run, base_rate: float | None, negatives: Tensor | None, progress: ProgressCallback | None = None
) -> Calibration | None:
    num_best = NUM_ANSWERS if base_rate is None else NUM_CANDIDATES
    given = best_answers(run, "valid", num_best, progress) if negatives is None else _judged(run, negatives)
    scores, relations, true = (column.numpy() for column in given)
    kept = np.isfinite(scores)
    scores, relations, true = scores[kept].astype(np.float64), relations[kept], true[kept]
    if len(scores) == 0:
        return None
    curve = fit_curve(scores, true, relations, run.graph.num_relations, base_rate)
    tables = (torch.from_numpy(curve.offsets), torch.from_numpy(curve.points))
    counts = (int(true.sum()), int((~true).sum()))
    source = "answers" if negatives is None else "given"
    return Calibration(curve.slope, curve.intercept, *tables, curve.base_rate, *counts, source, run.num_trained)


@torch.no_grad()
def _judged(run: Run, negatives: Tensor) -> JudgedAnswers:
    """Return the triples of the validation split, and given false ones."""
    triples = torch.cat([run.graph.valid.long(), negatives.cpu().long()])
    true = torch.arange(len(triples)) < len(run.graph.valid)
    parts = torch.split(triples, _SCORED_AT_ONCE)
    scores = torch.cat([run.model.score(part.to(run.model.device)).cpu() for part in parts])
    return scores, triples[:, 1], true
