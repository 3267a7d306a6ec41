"""PairRE: knowledge-graph completion from a file of triples to ranked, named predictions.

>>> import pairre
>>> graph = pairre.load_graph("atlas")
>>> run = pairre.train(graph)
>>> pairre.evaluate(run)["both"]["mrr"]
>>> pairre.predict(run, head="France", relation="borders")
>>> run.save("runs/atlas")
"""

import os

# torch and numba each keep a pool of OpenMP threads. Threads that spin while they wait take the cores from the other
# pool and from other programs: on a busy machine a step is then ten times slower. It must be set before torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

from pairre.errors import PairREError
from pairre.evaluate import evaluate
from pairre.graph import Graph, load_graph
from pairre.graph.statistics import graph_statistics
from pairre.predict import Prediction, predict
from pairre.recipe import Recipe, default_recipe, load_recipe
from pairre.runs import Run, load_run
from pairre.train import train

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
    "predict",
    "train",
]
