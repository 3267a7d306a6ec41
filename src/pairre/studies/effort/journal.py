"""The state of an effort, from which it goes on after a kill: a folder beside the run that it will end in.

plan.json   the plan and every trial so far; the run that it ends in keeps it
graph/      the graph, so that `--resume` needs none
member-N/   run folders of what is trained in full
whole-N/    members trained again on all of train, where triples were held out
result/     the run that is about to be moved to its place
lock        held by the process that works on it
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pairre.graph import Graph
from pairre.runs import RunFolder
from pairre.studies.effort.plan import EffortPlan
from pairre.support.errors import RunError
from pairre.support.files import disk_errors, read_checked_json, write_checked_json

PLAN = "plan.json"


@dataclass(frozen=True)
class Trial:
    """What a candidate reached on validation in some steps."""

    candidate: str
    round: int  # from 1; 0 for a member, which is trained in full
    steps: int
    seconds: float
    valid_mrr: float  # the best; 0 if it failed
    error: str = ""


def state_folder(out: Path) -> Path:
    """Return the folder beside a run folder that holds the state until that one is there."""
    return out.with_name(f"{out.name}.effort")


class Journal:
    """The state of an effort: what was planned and tried, and the seconds that this took."""

    def __init__(self, folder: Path, plan: EffortPlan, seed: int, trials: list[Trial], spent: float = 0.0) -> None:
        self.folder, self.plan, self.seed, self.trials = folder, plan, seed, trials
        self._started = time.monotonic() - spent

    @property
    def spent(self) -> float:
        """Seconds of work so far, that of earlier processes up to their last trial included."""
        return time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds until the planned time is over."""
        return self.plan.seconds - self.spent

    def find(self, candidate: str, number: int) -> Trial | None:
        """Return the trial of a candidate in a round, or None if it has not ended."""
        return next((one for one in self.trials if (one.candidate, one.round) == (candidate, number)), None)

    def add(self, trial: Trial) -> Trial:
        """Keep a trial."""
        self.trials.append(trial)
        self.store()
        return trial

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        trials = [asdict(one) for one in self.trials]
        return {"plan": self.plan.as_dict(), "seed": self.seed, "spent": self.spent, "trials": trials}

    def store(self) -> None:
        """Write the state."""
        write_checked_json(self.folder / PLAN, self.as_dict())

    @classmethod
    def load(cls, folder: Path) -> Journal:
        """Return the state that `store` wrote."""
        values = read_checked_json(folder / PLAN)
        try:
            trials = [Trial(**one) for one in values["trials"]]
            return cls(folder, EffortPlan.from_dict(values["plan"]), values["seed"], trials, values["spent"])
        except (KeyError, TypeError) as error:
            raise RunError(f"{folder / PLAN}: damaged: {error}; delete {folder} to begin anew") from error

    def remove(self) -> None:
        """Delete the folder; the run that it was for holds what is worth keeping."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Make a folder of state if there is none, and hold its lock during a block; one without a plan is removed."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with RunFolder(folder).locked():
        try:
            yield
        finally:
            if not (folder / PLAN).exists():
                shutil.rmtree(folder, ignore_errors=True)


def stored_graph(folder: Path) -> Graph:
    """Return the graph that an effort was begun with."""
    return Graph.load(folder / "graph", Journal.load(folder).plan.graph)
