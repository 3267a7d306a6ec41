"""Check a run folder: every file against its checksum and its contents, with advice for what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from pairre.runs.folder import RunFolder
from pairre.runs.mapped_rows import WHOLE, Block, open_blocks
from pairre.runs.run import stored_model
from pairre.runs.shard_files import weight_files
from pairre.support.errors import PairREError, RunError
from pairre.support.files import read_checked_json

_CHUNK = 1 << 16  # rows


@dataclass(frozen=True)
class FileReport:
    """What is wrong with a file of a run folder (`fault`, empty if nothing is), or what it holds (`note`)."""

    name: str
    fault: str = ""
    note: str = ""


def check_run(path: str | Path) -> list[FileReport]:
    """Return a report on each file of a run folder; a RunError says that it is no run folder at all."""
    folder = RunFolder.open(Path(path))
    return list(_reports(folder))


def _reports(folder: RunFolder) -> Iterator[FileReport]:
    described = folder.description()
    made = f"format {folder.format}, made {described.get('created', '?')}"
    yield FileReport("run.json", note=made if folder.format > 1 else f"{made}; files of this format have no checksums")
    damaged = {}
    for fault in folder.faults():
        file, _, what = fault.removeprefix(f"{folder.path}/").partition(": ")
        damaged[file] = what
    for name in sorted({*folder.constant_files(), *damaged}):
        yield FileReport(name, damaged.get(name, ""))
    if damaged:
        return  # what is left cannot be understood without these
    yield from _weights(folder)
    for name, examine in _EXAMINED.items():
        yield _report(folder, name, examine)


def _weights(folder: RunFolder) -> Iterator[FileReport]:
    """Yield a report on each file of weights."""
    try:
        files = weight_files(folder.path)
        if len(files) < 2:
            yield _report(folder, WHOLE, _examine_model)
            return
        for block in open_blocks(files, verify=False):
            yield _report(folder, block.file.path.name, partial(_examine_block, block))
    except RunError as error:  # of a file that does not go with the others
        name, _, what = str(error).removeprefix(f"{folder.path}/").partition(": ")
        yield FileReport(name, what.removeprefix("damaged: "))


def _examine_block(block: Block, folder: RunFolder) -> str:  # noqa: ARG001
    block.file.verify()
    for name, weights in block.file.tensors.items():
        for part in torch.split(weights, _CHUNK):
            if not bool(part.isfinite().all()):
                raise RunError(f"damaged: the {name} weights are not finite")
            block.file.release()
    return f"rows {block.start:,} to {block.stop:,} of {block.total:,}"


def _report(folder: RunFolder, name: str, examine: Callable[[RunFolder], str]) -> FileReport:
    if not (folder.path / name).exists():
        return FileReport(name, note="not there (yet)")
    try:
        return FileReport(name, note=examine(folder))
    except PairREError as error:
        return FileReport(name, fault=str(error).removeprefix(f"{folder.path / name}: "))


def _examine_model(folder: RunFolder) -> str:
    model = stored_model(folder, folder.graph(), folder.recipe(), folder.members(), torch.device("cpu"))
    folder.load_model(model)
    if infinite := [name for name, weights in model.named_parameters() if not bool(weights.isfinite().all())]:
        raise RunError(f"damaged: the {infinite[0]} weights are not finite")
    return f"{sum(p.numel() for p in model.parameters()):,} weights"


def _examine_checkpoint(folder: RunFolder) -> str:
    _, progress = folder.load_checkpoint()
    steps = folder.recipe().train.steps
    if progress.step > steps:
        raise RunError(f"damaged: it is at step {progress.step:,}, and the recipe has {steps:,}")
    return f"step {progress.step:,} of {steps:,}"


def _examine_log(folder: RunFolder) -> str:
    entries, num_damaged = folder.log.read()
    if num_damaged:
        raise RunError(f"{num_damaged:,} damaged lines, which are left out; {len(entries):,} are good")
    return f"{len(entries):,} entries"


def _examine_metrics(folder: RunFolder) -> str:
    metrics = folder.metrics() or {}
    return f"{metrics.get('split', '?')} MRR {metrics.get('both', {}).get('mrr', float('nan')):.4f}"


def _examine_calibration(folder: RunFolder) -> str:
    fitted = folder.calibration()
    assert fitted is not None, "the file exists"
    return f"fitted on {fitted.num_true} true and {fitted.num_false} false triples"


def _examine_plan(folder: RunFolder) -> str:
    plan = read_checked_json(folder.path / "plan.json")
    return f"{len(plan.get('trials', [])):,} trainings were compared"


_EXAMINED: dict[str, Callable[[RunFolder], str]] = {
    "checkpoint.safetensors": _examine_checkpoint,
    "log.jsonl": _examine_log,
    "metrics.json": _examine_metrics,
    "calibration.json": _examine_calibration,
    "plan.json": _examine_plan,
}
