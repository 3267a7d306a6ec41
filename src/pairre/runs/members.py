"""The members of an ensemble: what a run folder must know of them beside the weights, to build their models again.

members/N.toml        the recipe of a member
members/rules.tsv     the rules of the member that is rules, if there is one
members/members.json  what each member's weights go with, how the confidences of rules are combined, and whether rules
                      that name entities are a member, which are found in train again

Weights of all members and of the ensemble are in the folder's `model.safetensors`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch

from pairre.graph import Graph
from pairre.models import Ensemble, EntityRules, Model, RuleScores
from pairre.rules import Rule, read_rules, write_rules
from pairre.rules.apply import Combine
from pairre.runs.build import build_model
from pairre.settings import Recipe, load_stored_recipe
from pairre.settings.recipe import LossRecipe, ModelRecipe
from pairre.support.errors import RunError
from pairre.support.files import read_checked_json, write_checked_json, write_text

_LIST, _RULES = "members.json", "rules.tsv"


@dataclass(frozen=True)
class Members:
    """Everything that the models of an ensemble are built from, but their weights."""

    recipes: Sequence[Recipe]
    attached_with: Sequence[tuple[float, int]]
    rules: Sequence[Rule] = ()
    combine: Combine | None = field(default=None)  # None: no member is given rules
    entity_rules: bool = False

    @classmethod
    def of(cls, model: Ensemble, recipes: Sequence[Recipe]) -> Members:
        """Return the members of an ensemble."""
        attached = [
            member.attached_with or (recipe.init_range, recipe.train.seed)
            for member, recipe in zip(model.embeddings(), recipes, strict=True)
        ]
        given = model.rules
        rules, combine = (given.rules, given.combine) if given else ((), None)
        return cls(recipes, attached, rules, combine, model.has_entity_rules)

    def build(self, graph: Graph, device: torch.device) -> Ensemble:
        """Return an ensemble whose weights are about to be loaded."""
        members: list[Model] = [
            build_model(graph, recipe, device, False, attached)
            for recipe, attached in zip(self.recipes, self.attached_with, strict=True)
        ]
        if self.combine is not None:
            members.append(RuleScores(graph, self.rules, self.combine).to(device))
        if self.entity_rules:
            members.append(EntityRules(graph).to(device))
        return Ensemble(members, torch.ones(graph.num_relations, len(members)))

    def recipe(self, model: Ensemble) -> Recipe:
        """Return a recipe that stands for the ensemble; its loss is the likelihood that the weights are fitted to."""
        train = self.recipes[0].train
        loss = LossRecipe(name="cross-entropy", margin=0.0, subsampling=False)
        dim = sum(member.dim for member in model.embeddings())
        return Recipe(model=ModelRecipe(name=Ensemble.name, dim=dim), loss=loss, train=train)

    def save(self, folder: Path) -> None:
        """Write the members into a folder of their own."""
        folder.mkdir()
        for number, recipe in enumerate(self.recipes):
            write_text(folder / f"{number}.toml", recipe.to_toml())
        if self.combine is not None:
            write_rules(folder / _RULES, self.rules)
        described = {"attached_with": [list(a) for a in self.attached_with], "combine": self.combine}
        write_checked_json(folder / _LIST, {**described, "entity_rules": self.entity_rules})

    @classmethod
    def load(cls, folder: Path) -> Members:
        """Return the members that `save` wrote; a RunError says what is wrong with them."""
        file = folder / _LIST
        described = read_checked_json(file)
        try:
            attached = [_attachment(*pair) for pair in described["attached_with"]]
            combine = described["combine"]
            if combine is not None and combine not in get_args(Combine):
                raise ValueError("no way to combine rules")
            if type(of_entities := described.get("entity_rules", False)) is not bool:  # older folders do not say it
                raise TypeError("entity_rules is neither true nor false")
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{file}: damaged: {error}") from error
        if not attached:
            raise RunError(f"{file}: damaged: no members")
        recipes = [load_stored_recipe(folder / f"{number}.toml") for number in range(len(attached))]
        return cls(recipes, attached, read_rules(folder / _RULES) if combine else (), combine, of_entities)


def _attachment(bound: Any, seed: Any) -> tuple[float, int]:
    """Return a bound and a seed; raise TypeError or ValueError for anything else."""
    if not 0 < float(bound) < math.inf:
        raise ValueError("the bound is no length")
    return float(bound), operator.index(seed)
