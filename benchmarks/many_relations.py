"""How long do a training, a report and rule mining take on a graph with very many relations?

Triples are drawn at random, so that nothing can be learnt and every entity has something to do with every other: the
worst case for what makes sense for a relation.

    python benchmarks/many_relations.py [--relations 100000] [--keep]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import machine

NUM_TRIPLES, NUM_ENTITIES = 400_000, 20_000
SETTINGS = ["model.dim=32", "train.steps=100", "train.patience=0"]
ROOT = Path(__file__).parents[1]


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--relations", type=int, default=100_000)
    parser.add_argument("--keep", action="store_true", help="write docs/results/many-relations-DATE.json")
    arguments = parser.parse_args()
    described = machine.describe()
    with tempfile.TemporaryDirectory() as folder:
        graph, run = Path(folder) / "many.tsv", Path(folder) / "run"
        write_graph(graph, arguments.relations)
        options = [part for setting in SETTINGS for part in ("--set", setting)]
        found = {
            "train": _seconds("train", graph, "--out", run, "--device", "cpu", *options),
            "report": _seconds("report", run, "--out", Path(folder) / "report.html", "--device", "cpu"),
            "rules mine": _seconds("rules", "mine", graph, "--out", Path(folder) / "rules.tsv"),
        }
        log = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
        last = (run / "log.jsonl").stat().st_mtime
        found["train, after its last step"] = (run / "calibration.json").stat().st_mtime - last
        assert log[-1]["step"] == 100
    result = {
        "graph": {"triples": NUM_TRIPLES, "entities": NUM_ENTITIES, "relations": arguments.relations},
        "settings": SETTINGS,
        "seconds": {name: round(seconds, 1) for name, seconds in found.items()},
        "machine": described,
    }
    print(json.dumps(result["seconds"], indent=2))
    if arguments.keep:
        path = machine.RESULTS / f"many-relations-{described['date']}.json"
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def write_graph(path: Path, num_relations: int) -> None:
    """Write random triples, at least one of each relation."""
    random = np.random.default_rng(0)
    relation = np.r_[np.arange(num_relations), random.integers(num_relations, size=NUM_TRIPLES - num_relations)]
    ends = random.integers(NUM_ENTITIES, size=(NUM_TRIPLES, 2))
    rows = zip(ends[:, 0].tolist(), random.permutation(relation).tolist(), ends[:, 1].tolist(), strict=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"e{head}\tr{relation}\te{tail}\n" for head, relation, tail in rows)


def _seconds(*command: object) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    started = time.perf_counter()
    done = [sys.executable, "-m", "pairre", *map(str, command)]
    subprocess.run(done, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
