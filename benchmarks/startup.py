"""How long does a command take before it does anything? Median seconds of whole processes, and of bare imports.

Beside the seconds on the clock stand those of the processor, which say more on a machine that others use, too.

    python benchmarks/startup.py [--against CHECKOUT] [--repeats 7] [--keep]

`--against` names a checkout of another commit, whose commands are timed in turn with these. The times depend on the
machine; what can be compared are commands of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine

ROOT = Path(__file__).parents[1]
QUESTION = ["--head", "France", "--relation", "borders"]


# A command as it runs where only what pairre needs is installed: where they are, pyarrow loads pandas and numba scipy.
CORE_ONLY = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pandas", "scipy", "sklearn"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
from pairre.cli import main
main()
"""


def seconds(command: list[str], source: Path) -> tuple[float, float]:
    """Return the seconds of one process that imports pairre from a checkout: on the clock, and of the processor."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    started, before = time.perf_counter(), os.times()
    done = [sys.executable, *command]
    subprocess.run(done, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - started, used


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--against", type=Path, help="a checkout of another commit")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--keep", action="store_true", help="write docs/results/answers-startup-DATE.json")
    arguments = parser.parse_args()
    sources = {"now": ROOT} | ({"before": arguments.against.resolve()} if arguments.against else {})
    described = machine.describe()
    found: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        # An installed package has compiled modules; Python may be told not to write them here.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        commands = {"python": ["-c", "pass"], "import torch": ["-c", "import torch"]}
        for name, source in sources.items():
            run = str(Path(folder) / name)
            train = ["-m", "pairre", "train", "atlas", "--out", run, "--set", "train.steps=100", "--device", "cpu"]
            seconds(train, source)
        for name in ("--help", "--version", "graphs"):
            commands[f"pairre {name}"] = ["-m", "pairre", name]
        commands["import pairre"] = ["-c", "import pairre"]
        commands["pairre predict RUN"] = ["-m", "pairre", "predict", "RUN", *QUESTION, "--device", "cpu"]
        commands["pairre predict RUN, core packages"] = ["-c", CORE_ONLY, *commands["pairre predict RUN"][2:]]
        for what, command in commands.items():
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in sources}
            for _ in range(arguments.repeats + 1):
                for name, source in sources.items():
                    run = str(Path(folder) / name)
                    times[name].append(seconds([run if part == "RUN" else part for part in command], source))
            # The first process of each reads files from the disk, and compiles modules.
            found[what] = {
                name: {
                    key: round(statistics.median(column), 3)
                    for key, column in zip(("clock", "processor"), zip(*values[1:], strict=True), strict=True)
                }
                for name, values in times.items()
            }
            print(f"{what:<34}", found[what], flush=True)
    if arguments.keep:
        path = machine.RESULTS / f"answers-startup-{described['date']}.json"
        result = {"machine": described, "repeats": arguments.repeats, "median_seconds": found}
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
