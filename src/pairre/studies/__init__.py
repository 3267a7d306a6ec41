"""Studies of many runs: a search for good settings, and the reproduction of the paper's tables and figures.

Which settings are tried and how trials are judged is decided here, and which published figures ours are compared with.
"""

from pairre.studies.reproduce import EXPERIMENTS, reproduce
from pairre.studies.tune import DEFAULT_SPACE, Attempt, Tuned, load_space, tune

__all__ = ["DEFAULT_SPACE", "EXPERIMENTS", "Attempt", "Tuned", "load_space", "reproduce", "tune"]
