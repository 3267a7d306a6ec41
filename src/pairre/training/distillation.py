"""Distillation: a model learns, beside the triples, how another run scores the negatives of each query.

The term is the Kullback-Leibler divergence from the teacher's softmax over the negatives of a positive, all entities or
some, to the student's. Scores of the teacher are first brought to the scale at which they make the true entities of the
validation split most likely, so that a teacher may be of any model, or an ensemble.

B positives, K negatives of each.
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
from pairre.models import Chunked, Model, Own
from pairre.runs import Run, load_run, weight_files
from pairre.settings.recipe import Recipe
from pairre.support.errors import RunError
from pairre.support.randomness import generator
from pairre.support.tensors import read_metadata
from pairre.training.losses import MASKED, ScoredBatch
from pairre.training.sampling import Batch

log = logging.getLogger("pairre")
_MAX_TRIPLES = 1_000  # of the validation split, that the scale is fitted on


@dataclass(frozen=True)
class Teacher:
    """A model that another one learns from, and what run.json says about it."""

    model: Model
    scale: float  # that its scores are multiplied by
    described: dict[str, Any]

    def waits_for_host(self, chunk_size: int) -> bool:
        """Return whether the host has to read something before the negatives of a batch are scored."""
        return self.model.waits_for_host or chunk_size == 1

    @classmethod
    def of(cls, run: Run | str | Path, graph: Graph, device: torch.device) -> Teacher:
        """Return the teacher of a graph that a run, or the run of a folder, can be."""
        try:
            opened = run if isinstance(run, Run) else load_run(run, str(device))
        except RunError as error:
            raise RunError(f"distill.teacher: {error}") from error
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
    """Weight × KL(softmax(teacher / T) ‖ softmax(student / T)) over the negatives, a mean over the batch."""

    def __init__(self, recipe: Recipe, teacher: Teacher) -> None:
        loss, temperature = recipe.loss, recipe.distill.temperature
        self.model, self.weight = teacher.model, recipe.distill.weight
        self.teacher_scale = teacher.scale / temperature
        # `cross-entropy` takes scores times its temperature for logits, and so does this term beside it.
        self.student_scale = (loss.temperature if loss.name == "cross-entropy" else 1.0) / temperature
        self.over_all = recipe.sampling.negatives == 0

    @staticmethod
    def _log_softmax(logits: Tensor, scored: ScoredBatch) -> Tensor:
        """Return the logarithm of the softmax over the negatives that the loss does not mask."""
        known = scored.targets.known
        return (logits if known is None else logits.masked_fill(known, MASKED)).log_softmax(1)

    def _of_negatives(self, batch: Batch) -> Tensor:
        """Return the teacher's scores [B, K] of the negatives."""
        ends = (batch.anchor, batch.true) if batch.side == "tail" else (batch.true, batch.anchor)
        triples = torch.stack([ends[0], batch.relation, ends[1]], 1)
        if self.over_all:
            return self.model.score_all(triples, batch.side)
        match batch.layout:
            case Own():
                return self.model.score_candidates(triples, batch.side, batch.negative_ids)
            case Chunked(_, chunk_size):
                sets = zip(torch.split(triples, chunk_size), batch.negative_ids, strict=True)
                return torch.cat([self.model.score_candidates(part, batch.side, ids) for part, ids in sets])
            case _:
                return self.model.score_candidates(triples, batch.side, batch.negative_ids[0])

    def __call__(self, scored: ScoredBatch) -> Tensor:
        """Return the weighted divergence."""
        with torch.no_grad():
            wanted = self._log_softmax(self._of_negatives(scored.batch) * self.teacher_scale, scored)
        given = self._log_softmax(scored.negative * self.student_scale, scored)
        divergence = (wanted.exp() * (wanted - given)).sum(1)
        return self.weight * (scored.targets.weight * divergence).sum()
