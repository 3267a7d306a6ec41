"""From a recipe to a trained run: batches, loss terms, one step, the loop around the steps, several seeds.

Decided here: what a step does (`step.py`), and when training validates, stores a checkpoint and stops (`loop.py`).
"""

from pairre.training.extend import extend
from pairre.training.loop import TrainingInterruptedError
from pairre.training.losses import LOSSES, loss
from pairre.training.train import train, train_seeds

__all__ = ["LOSSES", "TrainingInterruptedError", "extend", "loss", "train", "train_seeds"]
