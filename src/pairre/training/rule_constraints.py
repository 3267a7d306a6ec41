"""Training that obeys rules between relations: by tying relations, or by a penalty beside the loss.

Either way a step gathers the rows of the rules' relations after those of its batch. B relations of a batch, n of rules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.models import Model
from pairre.models.contract import IdsByTable, RowsByTable
from pairre.rules import Kind, Rule, tie_order
from pairre.settings.recipe import Recipe
from pairre.support.errors import RuleError
from pairre.training.losses import ScoredBatch

log = logging.getLogger("pairre")
KINDS: dict[str, tuple[Kind, ...]] = {  # mode → the kinds of rules that it can obey
    "tie": ("subrelation", "equivalence"),
    "soft": ("subrelation", "equivalence", "inverse", "symmetry"),
}
_NAMED = 3  # relations that a warning names


def usable_rules(rules: Sequence[Rule], graph: Graph, recipe: Recipe) -> list[Rule]:
    """Return the rules that a recipe can obey on a graph; a warning counts the others."""
    mode = recipe.rules.mode
    present = set(graph.relations.name_list(range(graph.num_relations)))
    missing = dict.fromkeys(name for rule in rules for name in (*rule.body, rule.conclusion) if name not in present)
    known = [rule for rule in rules if missing.keys().isdisjoint((*rule.body, rule.conclusion))]
    kept = [rule for rule in known if rule.kind in KINDS[mode]]
    if missing:
        some = ", ".join(islice(missing, _NAMED)) + ", …" * (len(missing) > _NAMED)
        number = len(rules) - len(known)
        log.warning("%d of %d rules left out: %s has no relations %s", number, len(rules), graph.name, some)
    if len(kept) < len(known):
        kinds = ", ".join(sorted({rule.kind for rule in known} - set(KINDS[mode])))
        log.warning("%d of %d rules left out: mode %s has no %s", len(known) - len(kept), len(rules), mode, kinds)
    if not kept:
        raise RuleError(
            f"none of {len(rules)} rules can be followed: their relations must be in {graph.name}, their kinds in mode "
            f"{mode} {' or '.join(KINDS[mode])}"
        )
    return kept


class RuleConstraint:
    """What both modes share: which relation rows a step gathers for the rules."""

    table: Tensor | None = None  # what the optimiser updates in place of the model's relation rows

    def __init__(self, model: Model, graph: Graph, relations: Sequence[str]) -> None:
        self.model = model
        self.copies = 1 + model.reciprocal  # a rule holds for the reciprocal relations, too
        self.ids = self._in_all_copies([graph.relations.id(name) for name in relations], graph.num_relations)

    def _tensor(self, values: Sequence[object]) -> Tensor:
        return torch.tensor(values, device=self.model.device)

    def _in_all_copies(self, values: Sequence[int], size: int) -> Tensor:
        """Return positions in a copy of `size` relations as those in all copies."""
        return torch.cat([self._tensor(values) + copy * size for copy in range(self.copies)])

    def rows_needed(self, side: Side, ids: IdsByTable) -> tuple[IdsByTable, Callable[[RowsByTable], RowsByTable]]:
        """Return what `Model.rows_needed` returns, with the rows of the rules' relations after those of the batch."""
        batch_ids = ids["relation"]
        needed, build = {**ids, "relation": torch.cat([batch_ids, self.ids])}, None
        if self.model.needs_other_rows:
            needed, build = self.model.rows_needed(side, needed)

        def build_all(rows: RowsByTable) -> RowsByTable:
            built = build(rows) if build else rows
            own, stored = torch.split(built["relation"], [len(batch_ids), len(self.ids)])
            return {**built, "relation": self.relation_rows(batch_ids, own, stored)}

        return needed, build_all

    def relation_rows(self, ids: Tensor, own: Tensor, stored: Tensor) -> Tensor:  # noqa: ARG002
        """Return rows [B, ·] of relations `ids`, from their stored ones and those of the rules' relations [n, ·]."""
        return own

    def flush(self) -> None:
        """Bring the model to what is stored."""


class TiedRelations(RuleConstraint):
    """Rows of relations that follow from others are computed from theirs, so that no triple of them scores lower.

    The optimiser updates what the rows are computed from (`Model.implied`), which is also what a checkpoint holds; the
    model gets the rows when it is flushed, and is then like any other.
    """

    def __init__(self, model: Model, graph: Graph, rules: Sequence[Rule]) -> None:
        order = tie_order(rules)
        super().__init__(model, graph, order.stored)
        every = torch.arange(model.stored["relation"].num_rows, device=model.device)
        self.table: Tensor = model.stored["relation"].gather(every).detach()
        self._sizes = [len(order.first), *map(len, order.bodies)]
        self._first = self._tensor(order.first)
        self._is_first = (self._first == torch.arange(len(order.first), device=model.device))[:, None]
        self._bodies = [self._tensor(level) for level in order.bodies]
        self._position = torch.full((len(self.table),), -1, device=model.device)
        tied = self._in_all_copies([graph.relations.id(name) for name in order.position], graph.num_relations)
        self._position[tied] = self._in_all_copies(list(order.position.values()), len(order.stored))
        self.flush()

    def relation_rows(self, ids: Tensor, own: Tensor, stored: Tensor) -> Tensor:
        """Return computed rows for tied relations, and stored ones for the others."""
        position = self._position[ids]
        computed = torch.cat([self._compute(copy) for copy in stored.chunk(self.copies)])
        return torch.where((position < 0)[:, None], own, F.embedding(position.clamp(min=0), computed))

    def _compute(self, stored: Tensor) -> Tensor:
        """Return the rows of all tied relations from what is stored for them, one level of rules after the other."""
        top, *later = torch.split(stored, self._sizes)
        rows = torch.where(self._is_first, top, self.model.aligned(top, F.embedding(self._first, top)))
        for level, bodies in zip(later, self._bodies, strict=True):
            rows = torch.cat([rows, self.model.implied(level, F.embedding(bodies, rows))])
        return rows

    def flush(self) -> None:
        """Compute all relation rows of the model."""
        every = torch.arange(len(self.table), device=self.model.device)
        rows = self.relation_rows(every, self.table, self.table[self.ids])
        self.model.stored["relation"].write(every, rows)


class RulePenalty(RuleConstraint):
    """A loss term: μ Σ λ × the model's `rule_penalty`, a plain sum over rules, λ their confidence.

    An equivalence is two subrelations, a symmetry a relation that implies its own inverse.
    """

    def __init__(self, model: Model, graph: Graph, rules: Sequence[Rule], weight: float) -> None:
        assert (
            not model.needs_other_rows
        )  # `penalty` finds the rows of the rules' relations at the end of those gathered
        names = list(dict.fromkeys(name for rule in rules for name in (rule.body[0], rule.conclusion)))
        super().__init__(model, graph, names)
        position = {name: i for i, name in enumerate(names)}
        reverse = [
            Rule((r.conclusion,), r.body[0], "subrelation", r.confidence) for r in rules if r.kind == "equivalence"
        ]
        self._rules: dict[bool, tuple[Tensor, Tensor, Tensor]] = {}  # by whether they are inverses
        for inverse in (False, True):
            some = [r for r in (*rules, *reverse) if (r.kind in ("inverse", "symmetry")) == inverse]
            if some:
                sides = [[position[name] for name in (r.body[0], r.conclusion)] for r in some]
                body, conclusion = (self._in_all_copies(column, len(names)) for column in zip(*sides, strict=True))
                weights = self._tensor([weight * r.confidence for r in some]).repeat(self.copies)
                self._rules[inverse] = body, conclusion, weights

    def __call__(self, scored: ScoredBatch) -> Tensor:
        """Return the penalty of the relation rows that a step gathered."""
        return self.penalty(scored.leaves["relation"])

    def penalty(self, relation: Tensor) -> Tensor:
        """Return the sum over all rules; the rows of their relations are the last ones of `relation`."""
        own = relation[-len(self.ids) :]
        total = own.new_zeros(())
        for inverse, (body, conclusion, weight) in self._rules.items():
            parts = (self.model.parts("relation", F.embedding(ids, own)) for ids in (body, conclusion))
            total = total + (weight * self.model.rule_penalty(inverse, *parts)).sum()
        return total


def constrain_by_rules(rules: Sequence[Rule], model: Model, graph: Graph, recipe: Recipe) -> RuleConstraint:
    """Return how a model that trains obeys rules, as the recipe says."""
    if recipe.rules.mode == "tie":
        return TiedRelations(model, graph, rules)
    return RulePenalty(model, graph, rules, recipe.rules.weight)
