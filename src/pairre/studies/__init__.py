"""Studies of many runs: searches for good settings and for the best model, and the paper's tables and figures.

Which settings are tried and how trials are judged is decided here, and which published figures ours are compared with.
"""

from pairre.studies.effort import EFFORTS, EffortPlan, effort_plan, train_best
from pairre.studies.reproduce import EXPERIMENTS, reproduce
from pairre.studies.tune import DEFAULT_SPACE, Attempt, Tuned, load_space, tune

__all__ = [
    "DEFAULT_SPACE",
    "EFFORTS",
    "EXPERIMENTS",
    "Attempt",
    "EffortPlan",
    "Tuned",
    "effort_plan",
    "load_space",
    "reproduce",
    "train_best",
    "tune",
]
