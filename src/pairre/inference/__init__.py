"""Answers from a trained run: to queries, of the whole graph, and what the model says of given triples, by name.

Decided here: which candidates a query has and how answers are presented.
"""

from pairre.inference.answer_set import AnswerSet, answer_set
from pairre.inference.discover import discover
from pairre.inference.explain import Explanation, explain
from pairre.inference.export import export
from pairre.inference.neighbours import Cluster, Neighbour, Pair, clusters, duplicates, similar
from pairre.inference.predict import Prediction, Predictions, predict, predict_many
from pairre.inference.score import TripleScore, score

__all__ = [
    "AnswerSet",
    "Cluster",
    "Explanation",
    "Neighbour",
    "Pair",
    "Prediction",
    "Predictions",
    "TripleScore",
    "answer_set",
    "clusters",
    "discover",
    "duplicates",
    "explain",
    "export",
    "predict",
    "predict_many",
    "score",
    "similar",
]
