"""Train every model with 1, 2 and 3 threads on the CPU, and say for which of them the bits of the weights differ.

python -m soak.threads            prints them
python -m soak.threads --keep     also writes docs/results/soak-threads-DATE.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys

THREADS = (1, 2, 3)
SETTINGS = ("train.steps=12", "train.validate_every=12", "train.batch=512", "model.dim=128", "sampling.negatives=64")


def main() -> None:
    """Compare all models and print or keep which differ."""
    from pairre.models import models

    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", action="append", help="only these; repeatable")
    parser.add_argument("--keep", action="store_true", help="write docs/results/soak-threads-DATE.json")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(trained_bits(arguments.worker))
        return
    names = arguments.model or [model.name for model in models()]
    differ = [name for name in names if len({_with_threads(name, number) for number in THREADS}) > 1]
    every = len(models())
    result = {
        "threads": THREADS,
        "models": f"{len(names)} of {every}",
        "settings": SETTINGS,
        "same_bits": sorted({*names} - {*differ}),
        "differ": differ,
    }
    print(json.dumps(result, indent=2))
    if arguments.keep:
        from benchmarks.machine import RESULTS, describe

        path = RESULTS / f"soak-threads-{describe()['date']}.json"
        path.write_text(json.dumps({"machine": describe(), **result}, indent=2) + "\n", encoding="utf-8")


def trained_bits(name: str) -> str:
    """Return a hash of the weights of a model that a few steps were taken with, by this process."""
    import pairre

    run = pairre.train("atlas", overrides=[f"model.name={name}", *SETTINGS], progress=False, device="cpu")
    digest = hashlib.sha256()
    for value in run.model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def _with_threads(name: str, number: int) -> str:
    """Return `trained_bits` of a process with a number of threads."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(number), "MKL_NUM_THREADS": str(number)}
    command = [sys.executable, "-m", "soak.threads", "--worker", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


if __name__ == "__main__":
    main()
