"""One step of training: draw a batch, gather rows, score them, add up loss terms, take gradients, update rows.

B positives of a batch. Everything that a step changes is on the device, the number of the step included, so that
`capture.py` can record a step as a CUDA graph and overlap its parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import torch
from torch import Tensor

from pairre.graph import Graph, Side
from pairre.models import EntityRows, Model, model_class
from pairre.models.contract import IdsByTable, RowsByTable
from pairre.rules import Rule
from pairre.runs import InitVectors, Progress, RunFolder, build_model
from pairre.settings import validate, validate_over_processes
from pairre.settings.recipe import Recipe
from pairre.support.device import products_in_tf32
from pairre.support.errors import TrainingError
from pairre.support.processes import ALONE, Processes
from pairre.tables import (
    ShardedTable,
    TableGroup,
    learning_tables,
    restart_step,
    tables_of_some_entities,
    tables_over_processes,
)
from pairre.training.capture import CapturedSteps, overlap
from pairre.training.distillation import DistillationTerm, Teacher
from pairre.training.losses import EntityTerm, RelationTerm, ScoredBatch, Term
from pairre.training.memory import check_batch_memory, check_memory
from pairre.training.regularizers import Regularizer
from pairre.training.rule_constraints import RuleConstraint, RulePenalty, constrain_by_rules
from pairre.training.sampling import STEP_SIDES, Batch, Sampler


@dataclass(frozen=True)
class PartialTraining:
    """A trained model of which the rows of some entities learn, and all others stay as they are (`extend.py`)."""

    model: Model
    entities: Tensor  # [M] int64: whose rows learn
    triples: Tensor  # int32 [N, 3] of train: what they learn from
    weights: Tensor | None = None  # [N], if the triples of the graph have weights


class Trainer:
    """A model in training: its sampler, tables and loss terms, at some step."""

    def __init__(
        self,
        graph: Graph,
        recipe: Recipe,
        device: torch.device,
        rules: Sequence[Rule] = (),
        *,
        partial: PartialTraining | None = None,
        vectors: InitVectors | None = None,
        teacher: Teacher | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self.graph, self.recipe, self.processes = graph, recipe, processes
        score_function = model_class(recipe.model.name)
        validate(recipe, graph, score_function, with_rules=bool(rules))
        if processes.size > 1:
            validate_over_processes(recipe, score_function, device.type, with_rules=bool(rules))
        with processes.together():
            check_memory(graph, recipe, device, processes)
        learnt = (partial.triples, partial.weights) if partial else ()
        # Before the model, because building its index needs much memory.
        self.sampler = Sampler(graph, recipe, score_function, device, *learnt, processes=processes)
        check_batch_memory(graph, recipe, -(-self.sampler.batch_size // processes.size), device, processes)
        self.compute_targets = self.sampler.targets  # `overlap` replaces it on a GPU
        self.model = (
            partial.model if partial else build_model(graph, recipe, device, holds_entities=processes.size == 1)
        )
        if vectors:
            vectors.copy_into(self.model)
        self.rules = constrain_by_rules(rules, self.model, graph, recipe) if rules else None
        self._row_builder = self.rules or (self.model if self.model.needs_other_rows else None)
        if partial:
            self.tables = TableGroup(tables_of_some_entities(self.model, partial.entities, recipe.train))
        elif processes.size > 1:
            self.tables = TableGroup(tables_over_processes(self.model, recipe, processes))
        else:
            frozen = vectors.ids if vectors and vectors.frozen else None
            tied = self.rules.table if self.rules else None
            self.tables = TableGroup(learning_tables(self.model, recipe.train, relations=tied, frozen=frozen))
        self.terms = {side: _build_terms(self.model, recipe, self.sampler, self.rules, side) for side in STEP_SIDES}
        if teacher:
            for terms in self.terms.values():
                terms.append(DistillationTerm(recipe, teacher))
        self.step_number = torch.zeros((), dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)  # since `mean_loss` was last called
        self.model.step = self.step_number  # the same tensor: dropout and sampled neighbours follow it
        self.progress = Progress()
        self._weight_ids: IdsByTable = {}
        if (weights := self.tables.tables.get("weights")) is not None:  # all dense weights are updated in every step
            self._weight_ids["weights"] = torch.arange(weights.num_rows, device=device)
        self._restart = restart_step(recipe.train)
        self._captured: CapturedSteps | None = None
        # In the middle of a step, so that none is captured.
        needs_host = processes.size > 1 or (teacher is not None and teacher.waits_for_host(self.sampler.chunk_size))
        if device.type == "cuda" and self.sampler.kernels.can_capture and not needs_host:
            overlap(self, device)
            self._captured = CapturedSteps(self)
        self.steps_per_launch = self._captured.steps_per_launch if self._captured else 1

    @property
    def engine(self) -> str:
        """The name of the engine (`tables.engine`) that is used; empty for one process."""
        table = self.tables.tables["entity"]
        return table.engine.name if isinstance(table, ShardedTable) else ""

    def step(self, side: Side) -> None:
        """Take one step, which corrupts `side`."""
        batch = self.sampler.draw(side, self.step_number)
        targets = self.compute_targets(batch)
        ids, build_rows = self.rows_needed(batch)
        gathered = self.tables.gather(ids, self.step_number)
        leaves = {name: table.rows for name, table in gathered.items()}
        rows = build_rows(leaves) if build_rows else leaves
        size, num, relation = len(batch.relation), len(batch.relation_ids), rows["relation"]
        held, built = leaves["entity"], rows["entity"]
        stored = EntityRows(held, *torch.split(held, [2 * size, len(held) - 2 * size]))
        entity = EntityRows(built, *torch.split(built, [2 * size, len(built) - 2 * size])) if build_rows else stored
        all_relations = relation[num:]
        relation = relation[:num] if len(all_relations) else relation  # the gradient of a slice is a copy
        scores = self.model.score_batch(side, entity, relation, batch.layout)
        scored = ScoredBatch(batch, targets, leaves, stored, entity, relation, all_relations, *scores)
        loss = reduce(add, [term(scored) for term in self.terms[side]])
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        self.tables.update(gathered, dict(zip(leaves, gradients, strict=True)), self.step_number)
        self.loss_sum += loss.detach()
        self.step_number += 1

    def rows_needed(self, batch: Batch) -> tuple[IdsByTable, Callable[[RowsByTable], RowsByTable] | None]:
        """Return the ids of the rows that a step gathers, and what builds the batch's rows from them, if needed."""
        relation = batch.relation_ids
        if batch.side in self.sampler.relation_sides:
            relation = torch.cat([relation, self.sampler.relation_candidates[batch.side]])
        ids = {"entity": batch.entity_ids, "relation": relation}
        if source := self._row_builder:
            ids, build = source.rows_needed(batch.side, ids)
            return ids | self._weight_ids, build
        return ids | self._weight_ids, None

    def advance(self, num_steps: int = 1) -> None:
        """Take several steps. On a GPU this only queues them: nothing waits until a result is read."""
        self.model.train()
        end = self.progress.step + num_steps
        rounded = self.recipe.train.tf32 and self.step_number.is_cuda
        with products_in_tf32() if rounded else nullcontext():
            while (number := self.progress.step) < end:
                if number == self._restart:
                    self.restart_optimizers()
                stop = self._restart if self._restart and number < self._restart < end else end
                if self._captured:
                    self.progress.step += self._captured.run(number, stop)
                else:
                    self.step(STEP_SIDES[number % 2])
                    self.progress.step += 1
        self.model.eval()

    def restart_optimizers(self) -> None:
        """Forget the state of all optimisers."""
        for table in self.tables.tables.values():
            table.restart(self.step_number)

    def resume_from(self, progress: Progress) -> None:
        """Go on from the progress of a checkpoint, whose tensors are there already."""
        self.progress = progress
        self.step_number.fill_(progress.step)
        self.loss_sum.fill_(progress.loss_sum if self.processes.is_first else 0)

    def mean_loss(self, num_steps: int) -> float:
        """Return the mean loss of the `num_steps` steps since the last call; TrainingError if it is not finite."""
        value = self.total_loss() / num_steps
        self.loss_sum.zero_()
        if not math.isfinite(value):
            raise self._error(f"the loss became {value} by")
        return value

    def total_loss(self) -> float:
        """Return the sum of losses since `mean_loss` was last called, over all processes."""
        return self.processes.sum(self.loss_sum.clone()).item()

    def flush(self) -> None:
        """Apply what tables deferred, so that the model can be used."""
        for table in self.tables.tables.values():
            table.flush(self.step_number)
        if self.rules:
            self.rules.flush()

    def check_finite(self) -> None:
        """Raise TrainingError if any weight or the loss is not finite."""
        if not math.isfinite(loss := self.total_loss()):
            raise self._error(f"the loss became {loss} by")
        for name, table in self.tables.tables.items():
            is_finite = all(bool(rows.isfinite().all()) for _, rows in table.local_rows())
            if self.processes.any(not is_finite):
                raise self._error(f"the {name} weights are not finite at")

    def _error(self, what: str) -> TrainingError:
        return TrainingError(f"{what} step {self.progress.step:,}: try a smaller train.lr or a larger train.warmup")

    def store_checkpoint(self, folder: RunFolder) -> None:
        """Store everything that the next step depends on in a run folder."""
        folder.save_checkpoint(self.tensors(), self.progress_now())

    def progress_now(self) -> Progress:
        """Return a copy of the progress, for a checkpoint."""
        self.progress.loss_sum = self.total_loss()
        return replace(self.progress)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that a checkpoint holds, by name: weights and the state of optimisers."""
        kept = {**self.model.state_dict()}
        if self.rules and self.rules.table is not None:
            kept["relation"] = self.rules.table
        named = {f"model.{name}": value for name, value in kept.items()}
        for name, table in self.tables.tables.items():
            named |= {f"optimizer.{name}.{key}": value for key, value in table.state().items()}
        return named


def _build_terms(
    model: Model, recipe: Recipe, sampler: Sampler, rules: RuleConstraint | None, side: Side
) -> list[Term]:
    """Return what is added up to the loss of steps that corrupt `side`."""
    terms: list[Term] = []
    if side in sampler.relation_sides:
        terms.append(RelationTerm(recipe.loss, model, len(sampler.relation_sides)))
    terms.append(EntityTerm(recipe.loss))
    if recipe.regularizer.name != "none" and recipe.regularizer.weight:
        terms.append(Regularizer(recipe.regularizer, model))
    if isinstance(rules, RulePenalty):
        terms.append(rules)
    return terms
