"""What training by several processes asks before it begins: is there an earlier life, and can all of it be done?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pairre.support.errors import RecipeError, RunError
from pairre.support.processes import Processes


def starts_again(processes: Processes, out: str | Path | None) -> bool:
    """Return whether all processes were started again after one was killed, and a run folder is there to go on from."""
    return (
        processes.life > 0
        and out is not None
        and processes.any(processes.is_first and (Path(out) / "run.json").exists())
    )


def check_over_processes(processes: Processes, out: str | Path | None, **sources: Any) -> None:
    """Refuse what several processes cannot do: train without a folder, or start from the rows of some source."""
    if processes.size > 1 and out is None:
        raise RunError("out: several processes need a run folder, in which each stores its part")
    given = [name for name, source in sources.items() if source is not None]
    if processes.size > 1 and given:
        raise RecipeError(f"{given[0]}: several processes draw all rows themselves; train in one process (no --nproc)")
