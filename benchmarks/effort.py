"""Is what `pairre train --effort` finds better than the default settings, and how long does it take?

For each graph and seed: `train` with its defaults, `--effort quick` and `--effort standard`, each timed whole. What
is tried is in `studies/effort` and judged by validation; this script only reports. Test is ranked once for each
run, and its figures are in the file alone, so that nobody chooses by them while it runs.

    PAIRRE_DATA=… python benchmarks/effort.py [--graphs umls nations …] [--seeds 3] [--keep | --json FILE]
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from typing import Any

import machine
import pairre
from pairre.graph import Graph

GRAPHS = ("umls", "nations", "sports", "atlas", "codex-s")
METRICS = ("mrr", "hits_at_1", "hits_at_10")


def measured(run: pairre.Run) -> dict[str, dict[str, float]]:
    """Return the metrics of a run on the held-out splits that its graph has."""
    splits = [split for split in ("valid", "test") if len(run.graph.split(split))]  # type: ignore[arg-type]
    return {split: {key: pairre.evaluate(run, split)["both"][key] for key in METRICS} for split in splits}


def of_one_seed(graph: Graph, seed: int) -> dict[str, Any]:
    """Return metrics and seconds of every way to train, and what each effort kept."""
    said: list[str] = []

    def effort(name: str) -> pairre.Run:
        options: dict[str, Any] = {"effort": name, "seed": seed, "device": "cpu", "progress": False}
        return pairre.train_best(graph, **options, notify=said.append)

    ways: dict[str, Callable[[], pairre.Run]] = {
        "default": lambda: pairre.train(graph, overrides={"train.seed": seed}, device="cpu", progress=False),
        "quick": lambda: effort("quick"),
        "standard": lambda: effort("standard"),
    }
    found: dict[str, Any] = {}
    for name, way in ways.items():
        said.clear()
        started = time.perf_counter()
        run = way()
        seconds = round(time.perf_counter() - started, 1)
        found[name] = {**measured(run), "seconds": seconds, "said": list(said)}
        valid = f"valid {found[name]['valid']['mrr']:.4f}" if "valid" in found[name] else "no validation split"
        kept = "".join(line.split("  ", 1)[1] for line in said if line.endswith("(kept)"))
        print(f"{graph.name:8} seed {seed}  {name:9} {valid}  {seconds:6.1f} s  {kept}", flush=True)
    return found


def summary(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean and the standard deviation of MRR by way and split, and of seconds."""
    found: dict[str, Any] = {}
    for name, first in seeds[0].items():
        for split in ("valid", "test"):
            if split in first:
                values = [result[name][split]["mrr"] for result in seeds]
                spread = statistics.stdev(values) if len(values) > 1 else None
                found.setdefault(name, {})[split] = {"mrr": statistics.mean(values), "std": spread}
        found[name]["seconds"] = statistics.mean(result[name]["seconds"] for result in seeds)
    return found


def main() -> None:
    """Measure every graph and write the result."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), help="names of public graphs")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each graph")
    arguments = parser.parse_args()
    logging.disable()
    where = machine.describe()
    results: dict[str, Any] = {}
    for name in arguments.graphs:
        graph = pairre.load_graph(name)
        seeds = [of_one_seed(graph, seed) for seed in range(1 if arguments.quick else arguments.seeds)]
        results[name] = {"mean": summary(seeds), "seeds": seeds}
    machine.write("effort", {"machine": where, "graphs": results}, arguments)


if __name__ == "__main__":
    main()
