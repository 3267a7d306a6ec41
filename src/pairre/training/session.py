"""One run from its settings to its metrics: what it starts from, its folder, trainer, display and loop."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import torch

from pairre.evaluation import calibration_of, evaluate
from pairre.evaluation.calibration import is_huge
from pairre.graph import Graph, Split
from pairre.graph.leakage import describe_leakage
from pairre.rules import Rule
from pairre.runs import InitVectors, Run, RunFolder
from pairre.runs.changes import changed_keys, replace_recipe
from pairre.runs.folder import PLAIN_FORMAT
from pairre.settings import Overrides, Recipe, resolve, settings_list
from pairre.support.errors import RecipeError, RunError
from pairre.support.processes import ALONE, Processes
from pairre.support.text import shell_word
from pairre.training.display import make_display
from pairre.training.distillation import Teacher
from pairre.training.loop import Loop, ValidationCallback
from pairre.training.rule_constraints import usable_rules
from pairre.training.step import Trainer
from pairre.training.warm_start import copy_known_rows, fit_to_start, start_of

log = logging.getLogger("pairre")
_FINAL: tuple[Split, Split] = ("test", "valid")  # the first that is not empty is ranked when training ends


class Session:
    """One run from its settings to its metrics: the trainer, the folder with its lock, the display, the loop."""

    on_validation: ValidationCallback | None = None
    warns: bool = False  # of test triples that follow from train

    def __init__(
        self,
        graph: Graph,
        recipe: Recipe | str | Path | None,
        overrides: Overrides,
        rules: list[Rule] | None,
        *,
        init_from: Run | None = None,
        vectors: InitVectors | None = None,
        teacher: Teacher | None = None,
        path: Path | None,
        resume: bool,
        device: torch.device,
        progress: bool,
        tensorboard: bool = False,
        processes: Processes = ALONE,
    ) -> None:
        self.graph, self.path, self.resume, self.processes = graph, path, resume, processes
        self.folder = _existing_folder(path) if resume else None
        if init_from and vectors:
            raise RecipeError("initial vectors and another run (init_from) both say where entities start: choose one")
        self.origin = start_of(init_from) if init_from else {}
        if rules is None and self.folder:
            rules = self.folder.rules() or None
        chosen = recipe or (self.folder.recipe() if self.folder else init_from.recipe if init_from else None)
        self.recipe = resolve(graph, chosen, overrides, with_rules=bool(rules))
        if init_from:
            self.recipe = fit_to_start(self.recipe, init_from)
        self.rules = [] if rules is None else usable_rules(rules, graph, self.recipe)
        if init_from and self.rules and self.recipe.rules.mode == "tie":
            raise RecipeError("rules.mode: relations that rules tie cannot start from another run; use soft")
        self.changed: set[str] = set()  # keys of the recipe that are not as they were when the run was made
        self.vectors = vectors
        if teacher is None and self.recipe.distill.teacher:
            teacher = Teacher.of(self.recipe.distill.teacher, graph, device)
        self.taught_by = {"teacher": teacher.described} if teacher else {}
        if self.folder:
            self._compare_with(self.folder, overrides)
        elif path is not None:
            with processes.together():
                if processes.is_first:
                    check_free(path)
        # The trainer and the display raise errors before a folder is made.
        self.trainer = Trainer(
            graph, self.recipe, device, self.rules, vectors=self.vectors, teacher=teacher, processes=processes
        )
        if init_from and not self.folder:
            copy_known_rows(self.trainer.model, graph, init_from)
        # Which processes there are, and what brings rows to them: shown once, and noted in run.json.
        self.over_processes = {"processes": processes.size, "engine": engine} if (engine := self.trainer.engine) else {}
        place = f"{device}, {processes.size} processes ({engine})" if engine else str(device)
        self.display = make_display(graph, self.recipe, place, path if tensorboard else None, progress)

    def _compare_with(self, folder: RunFolder, overrides: Overrides) -> None:
        """Refuse to resume a run that was made from something else, and note which keys of its recipe change."""
        named = {setting.partition("=")[0].strip() for setting in settings_list(overrides)}
        self.changed = changed_keys(folder, self.graph, self.recipe, self.rules, named)
        origin = folder.origin()
        if origin.get("teacher") != self.taught_by.get("teacher"):
            raise RunError(f"{self.path}: was begun with another teacher, or its teacher has other weights now")
        if self.origin and origin != {**self.origin, **self.taught_by}:
            raise RunError(f"{self.path}: did not start from {self.origin['run']}; leave out --init-from")
        stored = folder.init_vectors()
        if self.vectors and not self.vectors.equals(stored):
            raise RunError(f"{self.path}: made with other initial vectors; leave them out, or choose another --out")
        self.vectors = stored

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if not self.folder and self.path:
                self.trainer.check_finite()
            with self.processes.together():
                if self.processes.is_first:
                    self._take_folder(stack)
            if self.path and not self.folder:
                self.folder = RunFolder(self.path)
            self.loop = Loop(self.trainer, self.folder, self.display, self.on_validation)
            if self.resume:
                self.loop.resume(self.changed)
            elif self.processes.size > 1:
                self.loop.state.store_checkpoint()
            if self.warns:
                _warn_of_leakage(self.graph)
            stack.enter_context(self.display)
            self._open = stack.pop_all()
        return self

    def _take_folder(self, stack: ExitStack) -> None:
        """Lock the run folder, or make it; only one process does."""
        if self.folder:
            stack.enter_context(self.folder.locked())
            if self.changed:
                replace_recipe(self.folder, self.recipe)
        elif self.path:
            origin = {**self.origin, **self.taught_by}
            alone = self.processes.size == 1
            self.folder = RunFolder.create(
                self.path,
                self.graph,
                self.recipe,
                self.rules,
                origin={**self.over_processes, **({"origin": origin} if origin else {})},
                vectors=self.vectors,
                fill=self.trainer.store_checkpoint if alone else lambda _: None,
            )
            stack.push(self._close_new_folder)

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def _close_new_folder(self, kind: type | None, *_: Any) -> None:
        """Unlock the folder that this session made; one that holds nothing worth keeping after an error is removed."""
        assert self.folder
        if kind is not None and self.folder.is_untrained():
            self.folder.remove()
        self.folder.unlock()

    def finish(self) -> Run:
        """Return the trained run; if it has a folder, rank its test split, store metrics and probabilities."""
        model = self.trainer.model.requires_grad_(False)
        origin = {**self.origin, **self.taught_by}
        run = Run(self.graph, self.recipe, model, self.loop.history, self.path, self.rules, origin=origin)
        final = [split for split in _FINAL if len(self.graph.split(split))]
        if self.folder and final:
            self.display.notify(f"ranking the {final[0]} split")
            metrics = evaluate(run, final[0])
            with self.processes.together():
                if self.processes.is_first:
                    self.folder.save_metrics(metrics)
        if self.folder and (calibration := calibration_of(run)):
            with self.processes.together():
                if self.processes.is_first:
                    self.folder.save_calibration(calibration)
        elif self.folder and len(self.graph.valid) and is_huge(self.graph):
            log.warning(
                "%s: no probabilities were fitted, which takes minutes and gigabytes for %s triples; "
                "pairre calibrate %s fits them",
                *(self.graph.name, f"{len(self.graph.train):,}", shell_word(self.folder.path)),
            )
        return run


def _warn_of_leakage(graph: Graph) -> None:
    """Log how many triples of the split that is ranked at the end follow from train, if that is noteworthy."""
    final = next((split for split in _FINAL if len(graph.split(split))), None)
    if final and (line := describe_leakage(graph.leakage[final], final)):
        log.warning("%s: %s", graph.name, line)


def check_free(path: Path) -> None:
    """Raise RunError unless a run folder can be made at a path; a run that can be continued is named as such."""
    resume = "continue it with --resume, or " if RunFolder(path).checkpoint else ""
    RunFolder.check_free(path, f"{resume}choose another --out")


def _existing_folder(path: Path | None) -> RunFolder:
    if path is None:
        raise RunError("resume: say which run folder, with out")
    folder = RunFolder.open(path)
    if folder.format < PLAIN_FORMAT:
        raise RunError(
            f"{path}: of format {folder.format}, which is read but no longer written; "
            f"pairre migrate {shell_word(path)} --out NEW makes a copy that can be resumed"
        )
    folder.verify()
    return folder
