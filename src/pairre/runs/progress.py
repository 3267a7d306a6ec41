"""How far training has come: what a resumed run must know beside its tensors."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Self


@dataclass
class Progress:
    """What the training loop must remember between a stop and a resume, beside the tensors."""

    step: int = 0
    best_mrr: float = -1.0
    validations_without_gain: int = 0
    seconds: float = 0.0
    reported_step: int = 0  # the step of the last report
    loss_sum: float = 0.0  # of the steps since the last report

    def __post_init__(self) -> None:
        """Refuse values that no training can have reached."""
        counts = (self.step, self.validations_without_gain, self.reported_step)
        if not all(type(count) is int and 0 <= count < 2**63 for count in counts):
            raise ValueError(f"{counts}: counts of steps and validations expected")
        numbers = (self.best_mrr, self.seconds, self.loss_sum)
        if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
            raise ValueError(f"{numbers}: finite numbers expected")
        if not -1 <= self.best_mrr <= 1 or self.seconds < 0 or self.reported_step > self.step:
            raise ValueError(f"{self}: impossible values")

    def to_json(self) -> str:
        """Return the progress as JSON."""
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the progress of a checkpoint; a ValueError says what is wrong with it.

        A checkpoint of format 1 has no sum of losses: the mean loss then starts at the step that it resumes from.
        """
        try:
            values = json.loads(text)
        except RecursionError:
            raise ValueError("the progress is nested too deep") from None
        if not isinstance(values, dict) or "step" not in values or values.keys() - {f.name for f in fields(cls)}:
            raise ValueError("it has no progress of a training")
        return cls(**{"reported_step": values["step"], **values})
