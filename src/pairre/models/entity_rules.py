"""Rules that name entities as a model: the score of a triple is the evidence of those that train supports, else 0."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from pairre.graph import Graph, Side
from pairre.models import rule_model
from pairre.models.rule_model import AnswerCache, Answers, RuleModel
from pairre.rules.entity_rules import EntityRuleBook

# Ensembles of one graph ask the same queries one after another.
_OF_BOOK: WeakKeyDictionary[EntityRuleBook, AnswerCache] = WeakKeyDictionary()


class EntityRules(RuleModel):
    """The evidence of all rules that name entities, which nobody has to list."""

    formula = "evidence of rules that name entities for (h, r, t)"

    def __init__(self, graph: Graph) -> None:
        """Take a graph, in whose training triples rules are found for each query."""
        book = EntityRuleBook.of(graph)
        super().__init__(graph, _OF_BOOK.setdefault(book, AnswerCache()))
        self.book = book

    @property
    def described(self) -> str:
        """What kind of rules there are."""
        return "entity rules"

    def answers(self, relations: np.ndarray, anchors: np.ndarray, side: Side) -> Sequence[Answers]:
        """Return the `MAX_ANSWERS` answers of each query with most evidence."""
        return self.book.answers(relations, anchors, side, min(rule_model.MAX_ANSWERS, self.num_entities))


EntityRules.name = "entity-rules"  # not in the class body, because a recipe cannot name it
