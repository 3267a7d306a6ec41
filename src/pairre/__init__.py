"""PairRE: knowledge-graph completion from a file of triples to ranked, named predictions.

>>> import pairre
>>> graph = pairre.load_graph("atlas")
>>> run = pairre.train(graph)
>>> pairre.evaluate(run)["both"]["mrr"]
>>> pairre.predict(run, head="France", relation="borders")
>>> run.save("runs/atlas")
"""

import os

# torch's idle OpenMP threads spin for long by default and take the cores from our own threads and other programs: on a
# busy machine a step is then many times slower. It must be set before torch loads; GNU's OpenMP reads it.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from typing import TYPE_CHECKING

from pairre.support.lazy import lazy_attributes
from pairre.support.version import __version__ as __version__

if TYPE_CHECKING:
    from pairre.evaluation import calibrate, ensemble, evaluate
    from pairre.evaluation.rule_evidence import evaluate_with_rules
    from pairre.graph import Graph, load_graph
    from pairre.graph.ingest.ingest import ingest
    from pairre.graph.statistics import graph_statistics
    from pairre.inference import (
        AnswerSet,
        Cluster,
        Explanation,
        Neighbour,
        Pair,
        Prediction,
        Predictions,
        TripleScore,
        answer_set,
        clusters,
        discover,
        duplicates,
        explain,
        export,
        predict,
        predict_many,
        score,
        similar,
    )
    from pairre.rules import Implied, Rule, apply_rules, mine, read_rules, write_rules
    from pairre.runs import Calibration, Run, check_run, load_run, merge, migrate
    from pairre.settings import Recipe, default_recipe, load_recipe
    from pairre.studies.effort import effort_plan, train_best
    from pairre.studies.tune import tune
    from pairre.support.errors import PairREError
    from pairre.training import extend, train, train_seeds
    from pairre.training.plan import make_plan

__all__ = [
    "AnswerSet",
    "Calibration",
    "Cluster",
    "Explanation",
    "Graph",
    "Implied",
    "Neighbour",
    "Pair",
    "PairREError",
    "Prediction",
    "Predictions",
    "Recipe",
    "Rule",
    "Run",
    "TripleScore",
    "answer_set",
    "apply_rules",
    "calibrate",
    "check_run",
    "clusters",
    "default_recipe",
    "discover",
    "duplicates",
    "effort_plan",
    "ensemble",
    "evaluate",
    "evaluate_with_rules",
    "explain",
    "export",
    "extend",
    "graph_statistics",
    "ingest",
    "load_graph",
    "load_recipe",
    "load_run",
    "make_plan",
    "merge",
    "migrate",
    "mine",
    "predict",
    "predict_many",
    "read_rules",
    "score",
    "similar",
    "train",
    "train_best",
    "train_seeds",
    "tune",
    "write_rules",
]

__getattr__ = lazy_attributes(__name__)


def __dir__() -> list[str]:
    return __all__
