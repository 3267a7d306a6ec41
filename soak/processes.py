"""Kill a random rank of a training at a random moment, and see that all start again and end in the same bits.

python -m soak.processes               ten kills, of two and of three processes in turn
python -m soak.processes --kills 2     two
python -m soak.processes --keep        also writes docs/results/soak-processes-DATE.json

Checkpoints are stored all the time, so that some kills fall into one. Afterwards the weights must be those of an
undisturbed training by as many processes, the folder must pass its checks, and nothing unfinished may be left in it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SETTINGS = ["model.dim=32", "train.batch=256", "sampling.negatives=64", "train.steps=400", "train.validate_every=100"]
SETTINGS += ["train.patience=0", "train.checkpoint_seconds=0.05"]


def main() -> None:
    """Kill, compare, print or keep the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--keep", action="store_true", help="write docs/results/soak-processes-DATE.json")
    arguments = parser.parse_args()
    chance, lines, failures = random.Random(0), [], []
    with tempfile.TemporaryDirectory() as folder:
        expected: dict[int, str] = {}
        for number in range(arguments.kills):
            processes, run = 2 + number % 2, Path(folder) / f"run-{number}"
            if processes not in expected:
                whole = Path(folder) / f"whole-{processes}"
                process = _start(whole, processes)
                assert process.wait() == 0, "the undisturbed training failed"
                expected[processes] = _weights(whole)
            line = _killed(run, processes, chance)
            line["same_bits"] = line["code"] == 0 and _weights(run) == expected[processes]
            line["left"] = [path.name for path in run.rglob("*.part")]
            lines.append(line)
            print(json.dumps(line), flush=True)
            failures += [line] * (not line["same_bits"] or bool(line["left"]))
    if arguments.keep:
        from benchmarks.machine import RESULTS, describe

        result = {"machine": describe(), "settings": SETTINGS, "kills": lines, "failures": len(failures)}
        path = RESULTS / f"soak-processes-{describe()['date']}.json"
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if failures:
        sys.exit(f"{len(failures)} of {len(lines)} kills ended otherwise; the first: {failures[0]}")


def _start(run: Path, processes: int) -> subprocess.Popen[str]:
    flags = [part for setting in SETTINGS for part in ("--set", setting)]
    command = [sys.executable, "-m", "pairre", "train", "atlas", "--out", str(run), "--nproc", str(processes), *flags]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


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
    resumed = [line.rsplit(" ", 1)[1] for line in said.splitlines() if line.startswith("resumed after step")]
    return {
        **{"processes": processes, "killed": victim, "in_a_checkpoint": writes, "code": process.returncode},
        "resumed_after": resumed,
    }


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
