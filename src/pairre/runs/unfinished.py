"""Whether a run was trained to its end: a stopped one answers as well, with the best weights so far."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pairre.runs.checkpoints import checkpoint_path, read_progress
from pairre.settings import Recipe
from pairre.support.text import shell_word


@dataclass(frozen=True)
class Unfinished:
    """How far a run was trained that was stopped before its end."""

    path: Path
    step: int
    num_steps: int

    @classmethod
    def of(cls, path: Path, recipe: Recipe) -> Self | None:
        """Return how far the run of a folder was trained; None if it has ended, or has no checkpoint to go on from."""
        if (found := checkpoint_path(path)) is None:
            return None
        progress, settings = read_progress(found), recipe.train
        has_ended = progress.step >= settings.steps
        stopped_early = progress.validations_without_gain >= (settings.patience or math.inf)
        return None if has_ended or stopped_early else cls(path, progress.step, settings.steps)

    def __str__(self) -> str:
        advice = f"`pairre train --resume --out {shell_word(self.path)}` finishes it"
        return f"{self.path}: trained {self.step:,} of {self.num_steps:,} steps; {advice}"
