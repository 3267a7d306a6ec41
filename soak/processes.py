"""Kill a random rank of a training, or fill its disk, and see that nothing is lost.

python -m soak.processes               ten kills at random moments, ten in the middle of a file, ten full disks
python -m soak.processes --cases 2     two of each
python -m soak.processes --keep        also writes docs/results/soak-processes-DATE.json

Two and three processes train in turn, and store checkpoints all the time. Files of a rank are checkpoints and weights,
so that a fault at a file operation falls into one. After a kill all start again by themselves. After a full disk all
stop with one line, the folder opens and passes its checks, and the training is resumed. In the end the weights must be
those of an undisturbed training by as many processes, the folder must pass its checks, and nothing unfinished may be
left in it.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SETTINGS = ["model.dim=32", "train.batch=256", "sampling.negatives=64", "train.steps=400", "train.validate_every=100"]
SETTINGS += ["train.patience=0", "train.checkpoint_seconds=0.05"]
KINDS = ("killed at a moment", "killed in a file", "full disk")
_OPERATIONS = 1000  # among which the one with a fault is chosen; each rank has more


def main() -> None:
    """Run the cases, compare, print or keep what happened."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--cases", type=int, default=10, help="of each kind (default 10)")
    parser.add_argument("--keep", action="store_true", help="write docs/results/soak-processes-DATE.json")
    arguments = parser.parse_args()
    chance, lines = random.Random(0), []
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve()
        library = _compile(base)
        expected: dict[int, str] = {}
        for number in range(len(KINDS) * arguments.cases):
            kind, processes = KINDS[number % len(KINDS)], 2 + number // len(KINDS) % 2
            if processes not in expected:
                whole = base / f"whole-{processes}" / "run"
                assert _start(whole, processes).wait() == 0, "the undisturbed training failed"
                expected[processes] = _weights(whole)
            run = base / f"case-{number}" / "run"
            line = {"kind": kind, "processes": processes, **_disturbed(run, processes, kind, library, chance)}
            line["same_bits"] = line["code"] == 0 and _weights(run) == expected[processes]
            line["left"] = [path.name for path in run.rglob("*.part")]
            line["failed"] = not line["same_bits"] or bool(line["left"]) or "fault" in line
            lines.append(line)
            print(json.dumps(line), flush=True)
            shutil.rmtree(run.parent)
    failures = [line for line in lines if line["failed"]]
    if arguments.keep:
        from benchmarks.machine import RESULTS, describe

        result = {"machine": describe(), "settings": SETTINGS, "cases": lines, "failures": len(failures)}
        path = RESULTS / f"soak-processes-{describe()['date']}.json"
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if failures:
        sys.exit(f"{len(failures)} of {len(lines)} cases ended otherwise; the first: {failures[0]}")


def _compile(folder: Path) -> Path:
    compiler = shutil.which("cc") or sys.exit("a C compiler is needed: cc")
    library = folder / "faults.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "faults.c", "-ldl"], check=True)
    return library


def _start(
    run: Path, processes: int, resume: bool = False, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    run.parent.mkdir(exist_ok=True)
    flags = [part for setting in SETTINGS for part in ("--set", setting)]
    graph = ["--resume"] if resume else ["atlas", *flags]
    plugin = ["--plugin", str(HERE / "rank_faults.py")] if environment else []
    command = [sys.executable, "-m", "pairre", *plugin, "train", *graph, "--out", str(run), "--nproc", str(processes)]
    every = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    return subprocess.Popen(command, env=every, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _disturbed(run: Path, processes: int, kind: str, library: Path, chance: random.Random) -> dict[str, Any]:
    """Train, have one thing go wrong, and return what happened."""
    if kind == "killed at a moment":
        return _killed(run, processes, chance)
    rank, at = chance.randrange(processes), chance.randrange(1, _OPERATIONS)
    number = errno.ENOSPC if kind == "full disk" else 0
    fault = {"RANK_FAULT": f"{rank}:{at}:{number}:{run.parent}", "LD_PRELOAD": str(library)}
    process = _start(run, processes, environment=fault)
    _, said = process.communicate()
    found = {"rank": rank, "operation": at, "code": process.returncode, "resumed_after": _resumed(said)}
    return found if kind != "full disk" else {**found, **_after_full_disk(run, processes, process.returncode, said)}


def _after_full_disk(run: Path, processes: int, code: int, said: str) -> dict[str, Any]:
    """Check how a training ended whose disk was full, and resume it."""
    import pairre

    told = [line for line in said.splitlines() if line.startswith("pairre: ")]
    if code == 0 and not told:
        return {"stored": True}  # nothing depends on that operation, such as the removal of what has been replaced
    if code != 2 or len(told) != 1 or "the disk is full" not in told[0] or "Traceback" in said:
        return {"fault": said[-2000:]}
    stored = (run / "run.json").exists()
    if stored:
        faults = [report.fault for report in pairre.check_run(run) if report.fault]
        if faults:
            return {"fault": faults}
        if any(run.glob("model*.safetensors")):
            assert pairre.load_run(run).unfinished
    process = _start(run, processes, resume=stored)
    _, said = process.communicate()
    return {"code": process.returncode, "stored": stored, "resumed_after": _resumed(said)}


def _resumed(said: str) -> list[str]:
    return [line.rsplit(" ", 1)[1] for line in said.splitlines() if line.startswith("resumed after step")]


def _killed(run: Path, processes: int, chance: random.Random) -> dict[str, Any]:
    """Train, kill one rank some time after the first checkpoint, and return what happened."""
    process = _start(run, processes)
    while not any(run.glob("checkpoint-*")) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(chance.uniform(0, 3))
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    victim = chance.randrange(len(children))
    writes = any(run.glob(".checkpoint-*.part"))
    subprocess.run(["kill", "-KILL", children[victim]], check=True)
    _, said = process.communicate()
    return {"rank": victim, "in_a_checkpoint": writes, "code": process.returncode, "resumed_after": _resumed(said)}


def _weights(run: Path) -> str:
    """Return a hash of the weights of a run, which must pass its checks."""
    from safetensors.numpy import load_file

    import pairre

    faults = [report for report in pairre.check_run(run) if report.fault]
    assert not faults, faults
    from hashlib import sha256

    digest = sha256()
    for file in sorted(run.glob("model*.safetensors")):
        for name, array in sorted(load_file(file).items()):
            digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
