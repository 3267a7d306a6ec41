"""Find out which model fits a graph: candidates are tried on validation, the best are trained, and one run results."""

from pairre.studies.effort.candidates import EFFORTS, EffortName
from pairre.studies.effort.plan import EffortPlan
from pairre.studies.effort.run import EffortInterruptedError, effort_plan, train_best

__all__ = ["EFFORTS", "EffortInterruptedError", "EffortName", "EffortPlan", "effort_plan", "train_best"]
