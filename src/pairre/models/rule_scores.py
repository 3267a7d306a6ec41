"""Rules as a model: the score of a triple is the confidence of the rules that conclude it from facts, else 0."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pairre.graph import Graph, Side
from pairre.models import rule_model
from pairre.models.rule_model import AnswerCache, Answers, RuleModel
from pairre.rules import Rule, RuleBook
from pairre.rules.apply import Combine


class RuleScores(RuleModel):
    """The confidence of given rules."""

    formula = "confidence of the rules that conclude (h, r, t)"

    def __init__(self, graph: Graph, rules: Sequence[Rule], combine: Combine = "max") -> None:
        """Take rules, which are applied to the training triples of a graph."""
        super().__init__(graph, AnswerCache())
        self.rules, self.combine = list(rules), combine
        self.book = RuleBook(graph, self.rules, graph.train, combine)

    @property
    def described(self) -> str:
        """How many rules there are."""
        return f"{len(self.rules):,} rules"

    def answers(self, relations: np.ndarray, anchors: np.ndarray, side: Side) -> Sequence[Answers]:
        """Return the `MAX_ANSWERS` most confident answers of each query; equal ones by their ids."""
        query, entity, confidence = self.book.answers(relations, anchors, side)
        order = np.lexsort((entity, -confidence, query))
        start = np.searchsorted(query[order], np.arange(len(anchors) + 1))
        found = []
        for first, stop in pairwise(start):
            best = order[first : min(stop, first + rule_model.MAX_ANSWERS)]
            found.append((entity[best], confidence[best]))
        return found


RuleScores.name = "rules"  # not in the class body, because a recipe cannot name it
