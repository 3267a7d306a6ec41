"""The paper's tables and figures, each by one command."""

from pairre.studies.reproduce.experiments import EXPERIMENTS, Experiment, Trial
from pairre.studies.reproduce.page import markdown
from pairre.studies.reproduce.run import Reproduced, Row, find, machine, reproduce

__all__ = ["EXPERIMENTS", "Experiment", "Reproduced", "Row", "Trial", "find", "machine", "markdown", "reproduce"]
