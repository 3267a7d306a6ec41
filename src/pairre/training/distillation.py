"""Distillation: a model learns, beside the triples, how another run scores all entities for each query.

The term is the Kullback-Leibler divergence from the teacher's softmax over all entities to the student's. Scores of the
teacher are first brought to the scale at which they make the true entities of the validation split most likely, so that
a teacher may be of any model, or an ensemble.

B positives, E entities.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pairre.evaluation.candidates import candidate_scores
from pairre.evaluation.mixing import temperatures
from pairre.graph import Graph
from pairre.models import Model
from pairre.runs import Run, load_run, weight_files
from pairre.settings.recipe import DistillRecipe, LossRecipe
from pairre.support.errors import RunError
from pairre.support.randomness import generator
from pairre.support.tensors import read_metadata
from pairre.training.losses import MASKED, ScoredBatch

log = logging.getLogger("pairre")
_MAX_TRIPLES = 1_000  # of the validation split, that the scale is fitted on


@dataclass(frozen=True)
class Teacher:
    """A model that another one learns from, and what run.json says about it."""

    model: Model
    scale: float  # that its scores are multiplied by
    described: dict[str, Any]

    @classmethod
    def of(cls, run: Run | str | Path, graph: Graph, device: torch.device) -> Teacher:
        """Return the teacher of a graph that a run, or the run of a folder, can be."""
        opened = run if isinstance(run, Run) else load_run(run, str(device))
        if opened.graph.fingerprint != graph.fingerprint:
            raise RunError(
                f"{opened}: from another graph than {graph.name}, so it cannot be its teacher; "
                'choose another (--teacher RUN), or none: --set distill.teacher=""'
            )
        files = weight_files(opened.path) if opened.path else []
        described = {
            "run": opened.path.name if opened.path else "a run in memory",
            "checksum": read_metadata(files[0]).get("checksum") if files else None,
        }
        return cls(opened.model.to(device), _scale(opened), described)


def _scale(run: Run) -> float:
    """Return what scores are multiplied by to be logits; 1 without a validation split."""
    triples = run.graph.valid
    if not len(triples):
        return 1.0
    chosen = torch.randperm(len(triples), generator=generator(0, "teacher"))[:_MAX_TRIPLES]
    found = candidate_scores([run.model], run.graph, triples[chosen])
    if not bool(found.scores.isfinite().all()):
        raise RunError(f"{run}: some scores are not finite numbers, so nothing can be learnt from them")
    return float(1 / temperatures(found)[0])


class DistillationTerm:
    """Weight × KL(softmax(teacher / T) ‖ softmax(student / T)) over all entities, a mean over the batch."""

    def __init__(self, recipe: DistillRecipe, loss: LossRecipe, teacher: Teacher) -> None:
        self.model, self.weight = teacher.model, recipe.weight
        self.of_teacher = teacher.scale / recipe.temperature
        # `cross-entropy` takes scores times its temperature for logits, and so does this term beside it.
        self.of_student = (loss.temperature if loss.name == "cross-entropy" else 1.0) / recipe.temperature

    @staticmethod
    def _log_softmax(logits: Tensor, scored: ScoredBatch) -> Tensor:
        """Return the logarithm of the softmax over the entities that the loss does not mask."""
        known = scored.targets.known
        return (logits if known is None else logits.masked_fill(known, MASKED)).log_softmax(1)

    def __call__(self, scored: ScoredBatch) -> Tensor:
        """Return the weighted divergence; the negatives of the batch are all entities in the order of ids."""
        batch = scored.batch
        ends = (batch.anchor, batch.true) if batch.side == "tail" else (batch.true, batch.anchor)
        triples = torch.stack([ends[0], batch.relation, ends[1]], 1)
        with torch.no_grad():
            wanted = self._log_softmax(self.model.score_all(triples, batch.side) * self.of_teacher, scored)  # [B, E]
        given = self._log_softmax(scored.negative * self.of_student, scored)
        divergence = (wanted.exp() * (wanted - given)).sum(1)
        return self.weight * (scored.targets.weight * divergence).sum()
