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

__version__ = "0.1.0"

from pairre.evaluation import evaluate
from pairre.graph import Graph, load_graph
from pairre.graph.statistics import graph_statistics
from pairre.inference import Prediction, predict
from pairre.runs import Run, load_run, merge
from pairre.settings import Recipe, default_recipe, load_recipe
from pairre.studies.tune import tune
from pairre.support.errors import PairREError
from pairre.training import train, train_seeds

__all__ = [
    "Graph",
    "PairREError",
    "Prediction",
    "Recipe",
    "Run",
    "default_recipe",
    "evaluate",
    "graph_statistics",
    "load_graph",
    "load_recipe",
    "load_run",
    "merge",
    "predict",
    "train",
    "train_seeds",
    "tune",
]
