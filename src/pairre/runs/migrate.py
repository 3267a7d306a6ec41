"""Migrate a run folder of an older format: a copy is written in today's, and the original stays as it is."""

from __future__ import annotations

from pathlib import Path

from pairre.runs.folder import PLAIN_FORMAT, RunFolder
from pairre.runs.run import load_run
from pairre.support.errors import RunError


def migrate(path: str | Path, out: str | Path) -> Path:
    """Write a copy of a run in today's format to the folder `out`, and return that folder.

    The copy has the same weights, checkpoint, log and metrics, so that it answers and resumes as the original did.
    """
    old = RunFolder.open(Path(path))
    if old.format >= PLAIN_FORMAT:
        raise RunError(f"{path}: has the newest format already ({old.format}); copy the folder as it is")
    old.verify()
    has_weights = (old.path / "model.safetensors").exists()
    has_checkpoint = (old.path / "checkpoint.safetensors").exists()

    def fill(folder: RunFolder) -> None:
        if has_weights:
            folder.save_model(load_run(old.path, "cpu").model)
        if has_checkpoint:
            folder.save_checkpoint(*old.load_checkpoint())
        if metrics := old.metrics():
            folder.save_metrics(metrics)
        if calibration := old.calibration():
            folder.save_calibration(calibration)
        folder.log.write(old.log.entries())

    origin = {name: value for name, value in old.description().items() if name != "version"}
    origin["migrated_from_format"] = old.format
    folder = RunFolder.create(Path(out), old.graph(), old.recipe(), old.rules(), fill, origin)
    folder.unlock()
    return folder.path
