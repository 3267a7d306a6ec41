"""The paper's tables and figures, each by one command."""

from pairre.reproduce.experiments import EXPERIMENTS, Experiment, Trial
from pairre.reproduce.page import markdown
from pairre.reproduce.run import Reproduced, Row, find, machine, reproduce

__all__ = ["EXPERIMENTS", "Experiment", "Reproduced", "Row", "Trial", "find", "machine", "markdown", "reproduce"]
