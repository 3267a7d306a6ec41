"""The loop: one visible step, validation, checkpoints, and what happens when it is interrupted."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pairre.device import pick_device
from pairre.display import Display, make_display
from pairre.errors import GraphError, PairREError, RunError, TrainingError
from pairre.evaluate import evaluate, evaluate_triples, summarise
from pairre.graph import Graph, Split, load_graph
from pairre.losses import LOSSES
from pairre.optim import learning_rate, make_optimizer, restart_step
from pairre.randomness import generator
from pairre.recipe import Recipe, resolve
from pairre.runs import Progress, Run, RunFolder, build_model
from pairre.sampling import Batch, Sampler

log = logging.getLogger("pairre")
_FINAL: tuple[Split, Split] = ("test", "valid")  # the first that is there is ranked when training ends


class TrainingInterruptedError(PairREError):
    """A signal asked training to stop; the run folder holds the step it reached."""

    def __init__(self, step: int, path: Path, signum: int) -> None:
        super().__init__(f"stopped at step {step:,}; {path} is saved: the same command with --resume continues")
        self.exit_code = 128 + signum


class Rows:
    """The rows of a table that a step touches, as a leaf for the gradient; where any of `wanted` is None, all rows."""

    def __init__(self, table: Tensor, *wanted: Tensor | None) -> None:
        some = [ids.flatten() for ids in wanted if ids is not None]
        self.ids = torch.unique(torch.cat(some)) if len(some) == len(wanted) else None
        self.values = table.detach().requires_grad_()
        if self.ids is not None:
            self.values = F.embedding(self.ids, table.detach()).requires_grad_()
            self._place = torch.empty(len(table), dtype=torch.int64, device=table.device)  # written where it is read
            self._place[self.ids] = torch.arange(len(self.ids), device=table.device)

    def local(self, ids: Tensor) -> Tensor:
        """Positions of ids among the rows."""
        return ids if self.ids is None else self._place[ids]

    @property
    def gradient(self) -> Tensor:
        """What the loss says about the rows."""
        return torch.zeros_like(self.values) if self.values.grad is None else self.values.grad


class Trainer:
    """Model, sampler and optimisers at some step."""

    def __init__(self, graph: Graph, recipe: Recipe, device: torch.device) -> None:
        self.graph, self.recipe = graph, recipe
        self.model = build_model(graph, recipe, device)
        self.sampler = Sampler(graph, recipe, device)
        self.optimizers = {n: make_optimizer(p.detach(), recipe.train) for n, p in self.model.named_parameters()}
        self.progress = Progress()

    def step(self) -> float:
        """One step: batch → rows → scores → loss → gradients → rows moved. Returns the loss."""
        number = self.progress.step
        if self.recipe.train.schedule == "step" and number == restart_step(self.recipe.train):
            for optimizer in self.optimizers.values():
                optimizer.restart()
        batch = self.sampler.batch(number)
        entity = Rows(self.model.entity, batch.anchor, batch.true, batch.negatives)
        relation = Rows(self.model.relation, batch.triples[:, 1])
        loss = self.loss(batch, entity, relation)
        value = loss.item()
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss became {value} at step {number + 1:,}; the last good state is kept: "
                "try a smaller train.lr or a larger train.warmup"
            )
        torch.autograd.backward(loss)
        lr = learning_rate(self.recipe.train, number)
        for name, rows in (("entity", entity), ("relation", relation)):
            self.optimizers[name].step(rows.ids, rows.gradient, lr)
        self.progress.step += 1
        return value

    def loss(self, batch: Batch, entity: Rows, relation: Rows) -> Tensor:
        """The loss of a batch, from the rows it touches."""
        compare = self.model.compare
        prepared = self.model.prepare(entity.values)
        relation_rows = F.embedding(relation.local(batch.triples[:, 1]), relation.values)
        true = entity.local(batch.true)
        q, w = self.model.query(batch.side, F.embedding(entity.local(batch.anchor), prepared), relation_rows)
        positive = compare(q, w, prepared, true[:, None])[:, 0]
        if batch.negatives is None:
            negative = compare(q, w, prepared)
        elif batch.share == 1:
            negative = compare(q, w, prepared, entity.local(batch.negatives))
        else:
            sets = F.embedding(entity.local(batch.negatives), prepared)
            chunks = zip(torch.split(q, batch.share), torch.split(w, batch.share), sets, strict=True)
            negative = torch.cat([compare(*chunk) for chunk in chunks])
        loss = LOSSES[self.recipe.loss.name](positive, negative, batch.known, batch.weight, self.recipe.loss)
        return loss + self.penalty(batch, entity, relation_rows)

    def penalty(self, batch: Batch, entity: Rows, relation_rows: Tensor) -> Tensor | float:
        """The regulariser: weight × mean over the batch of Σ |x|² (l2) or Σ |x|³ (n3) of its triples' parameters."""
        regularizer = self.recipe.regularizer
        if regularizer.name == "none" or regularizer.weight == 0:
            return 0.0
        power = 2 if regularizer.name == "l2" else 3
        ends = [F.embedding(entity.local(ids), entity.values) for ids in (batch.anchor, batch.true)]
        total = torch.stack([rows.abs().pow(power).sum() for rows in (*ends, relation_rows)]).sum()
        return regularizer.weight * total / len(batch.triples)

    def check_finite(self) -> None:
        """Refuse to let weights be stored that are good for nothing."""
        for name, table in self.model.named_parameters():
            if not bool(table.isfinite().all()):
                raise TrainingError(
                    f"the {name} weights are not finite at step {self.progress.step:,}; the last good state is kept: "
                    "try a smaller train.lr or a larger train.warmup"
                )

    def tensors(self) -> dict[str, Tensor]:
        """Everything a checkpoint holds: weights and optimiser state, by name."""
        named = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for table, optimizer in self.optimizers.items():
            named |= {f"optimizer.{table}.{name}": value for name, value in optimizer.state.items()}
        return named


def train(
    graph: Graph | str | Path,
    recipe: Recipe | str | Path | None = None,
    *,
    overrides: Iterable[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    progress: bool = True,
    tensorboard: bool = False,
) -> Run:
    """Train a model on a graph and return the run with its best weights.

    Without a recipe, settings are picked from the size of the graph. With `out`, the run is kept in that folder as it
    goes and `resume=True` continues it; without, it stays in memory until `run.save(...)`.
    """
    graph = graph if isinstance(graph, Graph) else load_graph(graph)
    if len(graph.train) == 0:
        raise GraphError(f"{graph.name}: train is empty")
    chosen = pick_device(device)
    path = None if out is None else Path(out)
    folder = _existing_folder(path) if resume else None
    resolved = resolve(graph, recipe or (folder.recipe() if folder else None), overrides)
    if folder:
        folder.check_same(graph, resolved)
    elif path is not None:
        RunFolder.check_free(path)
    # Both of these refuse what cannot be done before a folder is made.
    trainer = Trainer(graph, resolved, chosen)
    display = make_display(graph, resolved, chosen, path if tensorboard else None, progress)
    if path is not None and folder is None:
        folder = RunFolder.create(path, graph, resolved)
    with folder.locked() if folder else nullcontext():
        loop = Loop(trainer, folder, display)
        loop.prepare(resume)
        with display:
            loop.run()
            model = trainer.model.requires_grad_(False)
            run = Run(graph, resolved, model, loop.history, path)
            final = [split for split in _FINAL if len(graph.split(split))]
            if folder and final:
                display.say(f"ranking the {final[0]} split")
                folder.save_metrics(evaluate(run, final[0]))
    return run


def _existing_folder(path: Path | None) -> RunFolder:
    if path is None:
        raise RunError("resume: say which run folder, with out")
    return RunFolder.open(path)


class Loop:
    """Steps with everything around them: reports, validations, checkpoints, early stopping."""

    def __init__(self, trainer: Trainer, folder: RunFolder | None, display: Display) -> None:
        self.trainer, self.folder, self.display = trainer, folder, display
        self.progress = trainer.progress
        self.recipe = trainer.recipe
        self.history: list[dict[str, Any]] = []
        self.report_every = max(1, min(100, self.recipe.train.steps // 20))
        self.valid = self._validation_triples()
        self._best: dict[str, Tensor] = {}  # the best weights of a run without a folder

    def _validation_triples(self) -> Tensor:
        triples = self.trainer.graph.valid
        limit = self.recipe.train.validate_triples
        if not limit or len(triples) <= limit:
            return triples
        order = torch.randperm(len(triples), generator=generator(self.recipe.train.seed, "validation"))
        return triples[order[:limit]]

    def prepare(self, resume: bool) -> None:
        """Take up a stored state, or store the first one."""
        if self.folder is None:
            return
        if resume and (self.folder.path / "checkpoint.safetensors").exists():
            tensors, progress = self.folder.load_checkpoint()
            self.folder.put(tensors, self.trainer.tensors(), "checkpoint.safetensors")
            self.progress = self.trainer.progress = progress
            self.folder.cut_log(self.progress.step)
            self.history = self.folder.read_log()
        else:
            self.checkpoint()

    def run(self) -> None:
        """Train to the end, then leave the best weights in the model."""
        if self.progress.step:
            self.display.resumed(self.progress.step)
        if len(self.valid) == 0:
            log.warning("%s has no valid split: no early stopping, the last weights are kept", self.trainer.graph.name)
        with _interruptions(self.folder is not None) as stop:
            self._steps(stop)
        if self.folder:
            self.checkpoint()
            if len(self.valid) == 0:
                self.folder.save_model(self.trainer.model)
            self.folder.load_model(self.trainer.model)
        elif self._best:
            self.trainer.model.load_state_dict(self._best)

    def _steps(self, stop: list[int]) -> None:
        settings = self.recipe.train
        before, started, last_checkpoint = self.progress.seconds, time.monotonic(), time.monotonic()
        total, since, since_time = 0.0, self.progress.step, started
        while self.progress.step < settings.steps and not self._out_of_patience():
            total += self.trainer.step()
            step, now = self.progress.step, time.monotonic()
            self.progress.seconds = before + now - started
            if step % self.report_every == 0 or step == settings.steps:
                rate = (step - since) * self.trainer.sampler.batch_size / max(now - since_time, 1e-9)
                self._log({"step": step, "loss": total / (step - since), "triples_per_second": round(rate)})
                total, since, since_time = 0.0, step, now
            if len(self.valid) and (step % self.recipe.validate_every == 0 or step == settings.steps):
                self.validate()
                since_time += time.monotonic() - now
            if self.folder and (stop or time.monotonic() - last_checkpoint >= settings.checkpoint_seconds):
                self.checkpoint()
                last_checkpoint = time.monotonic()
                if stop:
                    raise TrainingInterruptedError(step, self.folder.path, stop[0])

    def _out_of_patience(self) -> bool:
        patience = self.recipe.train.patience
        return 0 < patience <= self.progress.validations_without_gain

    def validate(self) -> None:
        """Rank the validation triples; keep the weights if they are the best so far."""
        self.trainer.check_finite()
        ranks = evaluate_triples(self.trainer.model, self.valid, self.trainer.graph.known)
        both = summarise(ranks)["both"]
        if both["mrr"] > self.progress.best_mrr:
            self.progress.best_mrr = both["mrr"]
            self.progress.validations_without_gain = 0
            if self.folder:
                self.folder.save_model(self.trainer.model)
            else:
                self._best = {name: value.clone() for name, value in self.trainer.model.state_dict().items()}
        else:
            self.progress.validations_without_gain += 1
        self._log({"step": self.progress.step, "valid": both, "best_mrr": self.progress.best_mrr})

    def _log(self, entry: dict[str, Any]) -> None:
        entry = {**entry, "seconds": round(self.progress.seconds, 3)}
        self.history.append(entry)
        if self.folder:
            self.folder.append_log(entry)
        self.display.report(entry)

    def checkpoint(self) -> None:
        """Store all that the next step depends on."""
        self.trainer.check_finite()
        if self.folder:
            self.folder.save_checkpoint(self.trainer.tensors(), self.progress)


@contextmanager
def _interruptions(wanted: bool) -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying in the middle of a step; a second signal acts at once."""
    received: list[int] = []
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(signum: int, _: object) -> None:
        received.append(signum)
        signal.signal(signum, previous[signum])

    previous: dict[int, Any] = {int(s): signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
