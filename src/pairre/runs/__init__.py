"""Trained runs: the run folder on disk, a run in memory, several runs merged into one.

Decided here: what is stored, in which format, and what a damaged or foreign folder gets as an answer.
"""

from pairre.runs.build import build_model
from pairre.runs.calibration import Calibration
from pairre.runs.check import FileReport, check_run
from pairre.runs.folder import RunFolder
from pairre.runs.init_vectors import InitVectors, VectorSource, read_init_vectors
from pairre.runs.mapped_rows import whole_weights
from pairre.runs.members import Members
from pairre.runs.merge import came_later, can_fold, fold, merge
from pairre.runs.migrate import migrate
from pairre.runs.progress import Progress
from pairre.runs.run import Run, grown_model, load_run
from pairre.runs.shard_files import weight_files
from pairre.runs.unfinished import Unfinished
from pairre.runs.versions import versions

__all__ = [
    "Calibration",
    "FileReport",
    "InitVectors",
    "Members",
    "Progress",
    "Run",
    "RunFolder",
    "Unfinished",
    "VectorSource",
    "build_model",
    "came_later",
    "can_fold",
    "check_run",
    "fold",
    "grown_model",
    "load_run",
    "merge",
    "migrate",
    "read_init_vectors",
    "versions",
    "weight_files",
    "whole_weights",
]
