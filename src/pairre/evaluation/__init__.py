"""Filtered ranks of test triples, the metrics made of them, breakdowns, and probabilities.

The evaluation protocol is decided here (which candidates a triple is ranked among, how ties and NaN count), and every
metric is declared here, once.
"""

from pairre.evaluation.calibration import calibrate, calibration_of
from pairre.evaluation.ensemble import ensemble
from pairre.evaluation.evaluate import (
    By,
    evaluate,
    summarise_groups,
    triples_by_category,
    triples_by_relation,
)
from pairre.evaluation.metrics import (
    BREAKDOWN_METRICS,
    METRICS,
    Metric,
    bootstrap,
    metric,
    metric_rows,
    summarise,
)
from pairre.evaluation.ranking import ProgressCallback, Ranks, Ties, rank, rank_among, rank_both_sides

__all__ = [
    "BREAKDOWN_METRICS",
    "METRICS",
    "By",
    "Metric",
    "ProgressCallback",
    "Ranks",
    "Ties",
    "bootstrap",
    "calibrate",
    "calibration_of",
    "ensemble",
    "evaluate",
    "metric",
    "metric_rows",
    "rank",
    "rank_among",
    "rank_both_sides",
    "summarise",
    "summarise_groups",
    "triples_by_category",
    "triples_by_relation",
]
