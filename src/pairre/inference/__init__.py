"""Answers from a trained run: the most plausible triples for a query, by name.

Decided here: which candidates a query has and how answers are presented.
"""

from pairre.inference.predict import Prediction, predict

__all__ = ["Prediction", "predict"]
