"""Make one run of several runs of a graph: scores are added up, with weights that are chosen on validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pairre.evaluation.candidates import CandidateScores, candidate_scores
from pairre.evaluation.mixing import Fit, fit
from pairre.models import Ensemble, EntityRules, Model, RuleModel, RuleScores
from pairre.rules import Rule, read_rules
from pairre.rules.apply import Combine
from pairre.runs import Members, Run, came_later, can_fold, fold, load_run
from pairre.settings import Recipe
from pairre.support.errors import GraphError, RunError
from pairre.support.randomness import generator

MAX_TRIPLES = 5_000  # of the validation split, that weights are fitted on


def ensemble(
    runs: Iterable[Run | str | Path],
    *,
    rules: str | Path | Iterable[Rule] | None = None,
    combine: Combine = "max",
    entity_rules: bool = False,
    device: str = "auto",
    progress: Callable[[float], None] | None = None,
) -> Run:
    """Return a run whose scores are a weighted sum of those of other runs, of any models on one graph.

    Each run has a weight, and where the validation split has enough triples for it one for each relation;
    `evaluation/mixing.py` says how they are chosen there. With `rules`, a file or a list, the confidence of what rules
    conclude from train has a weight, too; with `entity_rules`, what rules that name entities say, which are found in
    train for each query. Members that are ensembles are taken apart. If all members are runs of PairRE, the result is
    one. `progress` is called with the fraction of the work done since its last call.

    >>> ensemble(["runs/pairre", "runs/complex"]).save("runs/both")
    """
    opened = [run if isinstance(run, Run) else load_run(run, device) for run in runs]
    if rules is None and combine != "max":
        raise RunError(f"ensemble: combine={combine!r} is about given rules; give some, too (--rules FILE)")
    given = read_rules(rules) if isinstance(rules, str | Path) else None if rules is None else list(rules)
    return fit_ensemble(opened, given, combine, progress, entity_rules=entity_rules).run()


@dataclass(frozen=True)
class FittedEnsemble:
    """The members of an ensemble, and the weights that the validation split chose for them."""

    members: _Parts
    fitted: Fit
    origin: dict[str, Any]  # what run.json says about them

    @property
    def left_out_mrr(self) -> float:
        """The validation MRR of such weights on triples that they were not fitted to."""
        return self.fitted.left_out_mrr[str(self.fitted.plan)]

    @property
    def member_mrr(self) -> list[float]:
        """The MRR of each member alone on the same triples, rules last."""
        return [member["valid_mrr"] for member in self.origin["members"]]

    def run(self) -> Run:
        """Return the ensemble as a run; if all members are runs of PairRE, it is one, too."""
        return self._made_of(self.members)

    def run_of(self, runs: Sequence[Run], rules: Sequence[Rule] | None) -> Run:
        """Return an ensemble with these weights of other runs, such as the same ones trained on more triples."""
        return self._made_of(_Parts.of(runs, rules, self.members.combine, self.members.has_entity_rules))

    def _made_of(self, members: _Parts) -> Run:
        foldable = not members.rules and can_fold(members.runs)
        weights = self.fitted.weights
        result = fold(members.runs, weights) if foldable else _unfolded(members, weights)
        result.origin = self.origin
        return result


def fit_ensemble(
    runs: Sequence[Run],
    rules: Sequence[Rule] | None = None,
    combine: Combine = "max",
    progress: Callable[[float], None] | None = None,
    *,
    entity_rules: bool = False,
) -> FittedEnsemble:
    """Return the weights of an ensemble, which is not made yet."""
    members = _Parts.of(runs, rules, combine, entity_rules)
    graph, models = members.graph, members.models
    if not len(graph.valid):
        raise GraphError(f"{graph.name}: no validation split, on which the weights of an ensemble are chosen")
    chosen = fitted_on(len(graph.valid))
    fixed = {side: ids[chosen] for side, ids in graph.fixed_candidates("valid").items()}
    num_scores = 2 * len(chosen) * graph.num_entities * len(models)

    def advance(number: int) -> None:
        if progress is not None:
            progress(number / num_scores)

    found = candidate_scores(models, graph, graph.valid[chosen], fixed, advance)
    members.check(found)
    fitted = fit(found, graph.num_relations)
    return FittedEnsemble(members, fitted, {**_origin(members, found, fitted), **came_later(runs)})


def fitted_on(num_triples: int) -> Tensor:
    """Return the positions of validation triples that weights are fitted on: all, or some of them, always the same."""
    if num_triples <= MAX_TRIPLES:
        return torch.arange(num_triples)
    return torch.randperm(num_triples, generator=generator(0, "ensemble"))[:MAX_TRIPLES]


class _Parts:
    """The members of an ensemble: runs of one model each, and rules of each kind at most once."""

    def __init__(self, runs: Sequence[Run], rules: Sequence[RuleModel]) -> None:
        self.runs, self.rules = runs, rules
        self.graph = runs[0].graph
        self.models: list[Model] = [*(run.model for run in runs), *rules]

    @classmethod
    def of(
        cls, runs: Sequence[Run], rules: Sequence[Rule] | None, combine: Combine, entity_rules: bool = False
    ) -> _Parts:
        """Return the members of runs; ensembles are taken apart."""
        if not runs or (len(runs) == 1 and rules is None and not entity_rules):
            raise RunError("ensemble: give at least two runs, or one and rules (--rules FILE or --entity-rules)")
        first = runs[0]
        single: list[Run] = []
        found: list[RuleModel] = []
        for run in runs:
            if run.graph.fingerprint != first.graph.fingerprint:
                raise RunError(f"{run}: from another graph than {first}; members share the triples of all splits")
            if not isinstance(run.model, Ensemble):
                single.append(run)
                continue
            for model, recipe in zip(run.model.embeddings(), run.members, strict=True):
                single.append(Run(run.graph, recipe, model))
            found += run.model.rule_members()
        device = single[0].model.device
        for one in single:
            one.model.to(device)
        given = [one for one in found if isinstance(one, RuleScores)]
        if rules is None and len({(one.combine, *one.rules) for one in given}) > 1:
            raise RunError("ensemble: its members have different rules; say which count, with rules (--rules FILE)")
        kept: list[RuleModel] = [RuleScores(first.graph, rules, combine)] if rules is not None else [*given[:1]]
        if entity_rules or any(isinstance(one, EntityRules) for one in found):
            kept.append(EntityRules(first.graph))
        return cls(single, [one.to(device) for one in kept])

    @property
    def combine(self) -> Combine:
        """How the confidences of given rules are combined."""
        return next((one.combine for one in self.rules if isinstance(one, RuleScores)), "max")

    @property
    def has_entity_rules(self) -> bool:
        """Whether rules that name entities are a member."""
        return any(isinstance(one, EntityRules) for one in self.rules)

    def names(self) -> list[str]:
        """Return what a person calls each member."""
        names = [run.path.name if run.path else run.model.name for run in self.runs]
        return names + [one.described for one in self.rules]

    def check(self, found: CandidateScores) -> None:
        """Raise a RunError if the scores of a member are not finite numbers."""
        lost = ~found.scores.isfinite().flatten(0, 1).all(0)
        if bool(lost.any()):
            name = self.names()[int(lost.nonzero()[0, 0])]
            raise RunError(f"{name}: some scores are not finite numbers, so they cannot be added; leave this run out")


def _unfolded(members: _Parts, weights: Tensor) -> Run:
    recipes: list[Recipe] = [run.recipe for run in members.runs]
    model = Ensemble(members.models, weights)
    model.requires_grad_(False)
    return Run(members.graph, Members.of(model, recipes).recipe(model), model, members=recipes)


def _origin(members: _Parts, found: CandidateScores, fitted: Fit) -> dict[str, Any]:
    """Return what run.json says about the members, their weights, and how these were chosen."""
    described = []
    shares = fitted.overall * fitted.temperatures
    for m, (name, model) in enumerate(zip(members.names(), members.models, strict=True)):
        only = torch.zeros(len(found.triple), len(members.models))
        only[:, m] = 1
        described.append(
            {
                "run": name,
                "model": model.name,
                "features": model.dim,
                "temperature": float(fitted.temperatures[m]),
                "weight": float(shares[m]),
                "valid_mrr": float(found.reciprocal_ranks(only).mean()),
            }
        )
    together = fitted.weights[found.relation]
    return {
        "command": "ensemble",
        "members": described,
        "weights": str(fitted.plan),
        "valid_mrr": float(found.reciprocal_ranks(together).mean()),
        "left_out_mrr": fitted.left_out_mrr,
        "num_triples": len(found.triple) // 2,
    }
