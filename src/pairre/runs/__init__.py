"""Trained runs: the run folder on disk, a run in memory, several runs merged into one.

Decided here: what is stored, in which format, and what a damaged or foreign folder gets as an answer.
"""

from pairre.runs.folder import Progress, RunFolder, versions
from pairre.runs.merge import merge
from pairre.runs.run import Run, build_model, load_run

__all__ = ["Progress", "Run", "RunFolder", "build_model", "load_run", "merge", "versions"]
