"""Training with rules: the relation rows that a step reads for them, and what it makes of these.

Either way a step reads the rows of the rules' relations beside those of its batch. B relations of a batch, n of rules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.models import MODELS, Model, model_class
from pairre.models.base import Ids
from pairre.rules import Kind, Rule, tie_order
from pairre.settings.recipe import Recipe
from pairre.support.errors import RecipeError, RuleError

log = logging.getLogger("pairre")
FOLLOWED: dict[str, tuple[Kind, ...]] = {
    "tie": ("subrelation", "equivalence"),
    "soft": ("subrelation", "equivalence", "inverse", "symmetry"),
}
_NAMED = 3  # relations that a warning names


def usable(rules: Sequence[Rule], graph: Graph, recipe: Recipe) -> list[Rule]:
    """The rules that a recipe can follow on a graph; others are left out and counted in a warning."""
    mode, model = recipe.rules.mode, model_class(recipe.model.name)
    if mode not in model.rule_modes:
        able = ", ".join(model.name for model in MODELS if mode in model.rule_modes)
        raise RecipeError(f"rules.mode: {model.name} cannot follow rules in mode {mode}; models that can: {able}")
    there = set(graph.relations.name_list(range(graph.num_relations)))
    lacking = dict.fromkeys(name for rule in rules for name in (*rule.body, rule.conclusion) if name not in there)
    known = [rule for rule in rules if lacking.keys().isdisjoint((*rule.body, rule.conclusion))]
    kept = [rule for rule in known if rule.kind in FOLLOWED[mode]]
    if lacking:
        some = ", ".join(islice(lacking, _NAMED)) + ", …" * (len(lacking) > _NAMED)
        number = len(rules) - len(known)
        log.warning("%d of %d rules left out: %s has no relations %s", number, len(rules), graph.name, some)
    if len(kept) < len(known):
        kinds = ", ".join(sorted({rule.kind for rule in known} - set(FOLLOWED[mode])))
        log.warning("%d of %d rules left out: mode %s has no %s", len(known) - len(kept), len(rules), mode, kinds)
    if not kept:
        raise RuleError(
            f"none of {len(rules)} rules can be followed: their relations must be in {graph.name}, their kinds in mode "
            f"{mode} {' or '.join(FOLLOWED[mode])}"
        )
    return kept


class Ruled:
    """What both modes share; as it is, rules are read and not followed."""

    def __init__(self, model: Model, graph: Graph, relations: Sequence[str]) -> None:
        self.model, self.table = model, model.relation.detach()  # what optimisers move
        self.halves = 1 + model.reciprocal  # a rule holds for the reciprocal relations, too
        self.ids = self._everywhere([graph.relations.id(name) for name in relations], graph.num_relations)

    def _tensor(self, values: Sequence[object]) -> Tensor:
        return torch.tensor(values, device=self.table.device)

    def _everywhere(self, values: Sequence[int], size: int) -> Tensor:
        """Positions in a half of that size, as those in all halves."""
        return torch.cat([self._tensor(values) + half * size for half in range(self.halves)])

    def reads(self, side: Side, ids: Ids) -> tuple[Ids, Callable[[Ids], tuple[Tensor, Tensor]]]:
        """As `Model.reads`, with the rows of the rules' relations after those of the batch's."""
        asked = ids["relation"]
        wanted, make = self.model.reads(side, {**ids, "relation": torch.cat([asked, self.ids])})

        def make_batch(rows: Ids) -> tuple[Tensor, Tensor]:
            entity, relation = make(rows)
            return entity, self.rows(asked, *torch.split(relation, [len(asked), len(self.ids)]))

        return wanted, make_batch

    def rows(self, asked: Tensor, own: Tensor, stored: Tensor) -> Tensor:  # noqa: ARG002
        """Rows [B, ·] of relations `asked`, from their stored ones and those of the rules' relations [n, ·]."""
        return own

    def penalty(self, relation: Tensor) -> Tensor | None:  # noqa: ARG002
        """What is added to the loss, from all relation rows that a step read."""
        return None

    def settle(self) -> None:
        """Bring the model to what is stored."""


class Tied(Ruled):
    """Rows of relations that follow from others are made of theirs, so that no triple of them scores lower.

    Optimisers move what the rows are made of (`Model.implied`), which is what a checkpoint holds; the model gets the
    rows when it settles, and is then as any other.
    """

    def __init__(self, model: Model, graph: Graph, rules: Sequence[Rule]) -> None:
        order = tie_order(rules)
        super().__init__(model, graph, order.stored)
        self.table = self.table.clone()
        self._sizes = [len(order.first), *map(len, order.bodies)]
        self._first = self._tensor(order.first)
        self._is_first = (self._first == torch.arange(len(order.first), device=self.table.device))[:, None]
        self._bodies = [self._tensor(level) for level in order.bodies]
        self._place = torch.full((len(self.table),), -1, device=self.table.device)
        tied = self._everywhere([graph.relations.id(name) for name in order.place], graph.num_relations)
        self._place[tied] = self._everywhere(list(order.place.values()), len(order.stored))
        self.settle()

    def rows(self, asked: Tensor, own: Tensor, stored: Tensor) -> Tensor:
        """Those that are tied are made, the others stay."""
        place = self._place[asked]
        made = torch.cat([self._made(half) for half in stored.chunk(self.halves)])
        return torch.where((place < 0)[:, None], own, F.embedding(place.clamp(min=0), made))

    def _made(self, stored: Tensor) -> Tensor:
        """Rows of all places from what is stored for them, a level after the other."""
        top, *later = torch.split(stored, self._sizes)
        made = torch.where(self._is_first, top, self.model.aligned(top, F.embedding(self._first, top)))
        for level, bodies in zip(later, self._bodies, strict=True):
            made = torch.cat([made, self.model.implied(level, F.embedding(bodies, made))])
        return made

    def settle(self) -> None:
        """Make all rows."""
        everyone = torch.arange(len(self.table), device=self.table.device)
        self.model.relation.detach().copy_(self.rows(everyone, self.table, self.table[self.ids]))


class Soft(Ruled):
    """A penalty beside the loss: μ Σ λ × the model's `rule_penalty`, a plain sum over rules, λ their confidence.

    An equivalence is two subrelations, a symmetry a relation that implies its own inverse.
    """

    def __init__(self, model: Model, graph: Graph, rules: Sequence[Rule], weight: float) -> None:
        names = list(dict.fromkeys(name for rule in rules for name in (rule.body[0], rule.conclusion)))
        super().__init__(model, graph, names)
        place = {name: i for i, name in enumerate(names)}
        both = [Rule((r.conclusion,), r.body[0], "subrelation", r.confidence) for r in rules if r.kind == "equivalence"]
        self._rules: dict[bool, tuple[Tensor, Tensor, Tensor]] = {}  # by whether they are inverses
        for inverse in (False, True):
            some = [r for r in (*rules, *both) if (r.kind in ("inverse", "symmetry")) == inverse]
            if some:
                body, head = [place[r.body[0]] for r in some], [place[r.conclusion] for r in some]
                weights = self._tensor([weight * r.confidence for r in some]).repeat(self.halves)
                self._rules[inverse] = self._everywhere(body, len(names)), self._everywhere(head, len(names)), weights

    def penalty(self, relation: Tensor) -> Tensor:
        """The sum over all rules."""
        own = relation[-len(self.ids) :]
        total = own.new_zeros(())
        for inverse, (body, head, weight) in self._rules.items():
            parts = (self.model.parts("relation", F.embedding(places, own)) for places in (body, head))
            total = total + (weight * self.model.rule_penalty(inverse, *parts)).sum()
        return total


def follow(rules: Sequence[Rule], model: Model, graph: Graph, recipe: Recipe) -> Ruled:
    """How a model that trains follows rules."""
    if recipe.rules.mode == "tie":
        return Tied(model, graph, rules)
    return Soft(model, graph, rules, recipe.rules.weight)
