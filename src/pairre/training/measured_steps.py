"""What a step was measured to take: one line for each figure, with the file of `docs/results/` that it is from.

A test compares every line with its file. A step hardly depends on the size of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MeasuredStep:
    """The time of a training step of PairRE with given settings on a device."""

    device: str
    optimizer: str  # with Adam, and which rows it moves
    dim: int
    batch: int
    negatives: int
    chunk_size: int  # 0 for negatives that the batch shares
    step_ms: float
    file: str
    graph: str  # that was trained on
    place: str = "device"  # `tables.place`

    def counts_for(self, place: str) -> bool:
        """Return whether the rows of entities were in such a place, which makes no difference on a CPU."""
        return self.device == _CORES or self.place == place

    @property
    def work(self) -> int:
        """Numbers that a step multiplies: of positives, negatives of each and features."""
        return self.batch * self.negatives * self.dim


_GPU, _CPU, _HOST = "gpu-2026-11-15.json", "cpu-2026-11-15.json", "scale-host-2026-11-19.json"
_H200, _CORES = "NVIDIA H200", "2 CPU cores"
MEASURED_STEPS = (
    MeasuredStep(_H200, "adam all", 1500, 1024, 256, 0, 0.3008, _GPU, "fb15k-237"),
    MeasuredStep(_H200, "adagrad", 200, 512, 128, 0, 0.0673, _GPU, "ogbl-wikikg2"),
    MeasuredStep(_H200, "adam touched", 200, 512, 128, 0, 0.0585, _GPU, "ogbl-wikikg2"),
    MeasuredStep(_H200, "adam all", 200, 512, 128, 0, 0.1042, _GPU, "ogbl-wikikg2"),
    MeasuredStep(_H200, "adagrad", 200, 512, 128, 0, 0.0604, _GPU, "WikiKG90M"),
    MeasuredStep(_H200, "adagrad", 200, 1024, 256, 0, 0.2224, _HOST, "2,500,604 entities", "host"),
    MeasuredStep(_H200, "adam touched", 200, 1024, 256, 0, 0.3919, _HOST, "2,500,604 entities", "host"),
    MeasuredStep(_H200, "adam all", 200, 1024, 256, 0, 0.6587, _HOST, "2,500,604 entities", "host"),
    MeasuredStep(_H200, "adagrad", 200, 1024, 256, 1, 12.3469, _HOST, "2,500,604 entities", "host"),
    MeasuredStep(_H200, "adagrad", 200, 1024, 256, 0, 0.2729, _HOST, "91,230,610 entities", "host"),
    MeasuredStep(_H200, "adagrad", 200, 1024, 256, 0, 0.2822, _HOST, "133,549,978 entities", "host"),
    MeasuredStep(_CORES, "adam all", 200, 1024, 256, 0, 16.74, _CPU, "fb15k-237"),
    MeasuredStep(_CORES, "adam touched", 200, 1024, 256, 0, 16.31, _CPU, "fb15k-237"),
    MeasuredStep(_CORES, "adam all", 200, 1024, 256, 1, 57.28, _CPU, "fb15k-237"),
    MeasuredStep(_CORES, "adam touched", 200, 1024, 256, 1, 50.99, _CPU, "fb15k-237"),
)
