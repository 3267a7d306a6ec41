"""How long do a training step and the filtered evaluation of FB15k-237 take, for every model at 400 features?

A step has 1,024 positives and 256 shared negatives; the evaluation is the whole test split, both sides. The bars are
those of one H200: a step in 5 ms and the evaluation in 0.5 s.

    PAIRRE_DATA=… python benchmarks/speed.py [MODEL …] [--before FILE] [--features 400] [--quick] [--keep | --json FILE]

With `--before`, the file of an earlier commit, the table has both.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import machine
import pairre
from pairre.evaluation import rank_both_sides
from pairre.models import models
from pairre.settings import Recipe, override
from pairre.support.device import pick_device
from pairre.training.step import Trainer

GRAPH = "fb15k-237"
BARS = {"step_ms": 5.0, "evaluation_s": 0.5}


def seconds(call: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Return the median over calls, each with the device idle before and after."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measured(graph: pairre.Graph, name: str, features: int, quick: bool) -> dict[str, Any]:
    """Return the times of one model."""
    device = pick_device()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    changes = [f"model.name={name}", f"model.dim={features}", "train.steps=100000"]
    trainer = Trainer(graph, override(Recipe(), changes), device)
    trainer.advance(4 * trainer.steps_per_launch)  # compiles and records
    num_steps = 2 if quick else 100
    step = seconds(lambda: trainer.advance(num_steps), 1 if quick else 3, device) / num_steps
    trainer.flush()
    triples = graph.test[:20] if quick else graph.test
    rank_both_sides(trainer.model, graph.test[:2000] if device.type == "cuda" else triples[:20], graph.known)
    evaluation = seconds(lambda: rank_both_sides(trainer.model, triples, graph.known), 1 if quick else 3, device)
    row: dict[str, Any] = {"model": name, "step_ms": 1e3 * step, "evaluation_s": evaluation}
    if device.type == "cuda":
        row["memory_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    return row


def main() -> None:
    """Measure the models that were asked for, and print a line for each as it is done."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all of them by default")
    parser.add_argument("--before", type=Path, help="a file of an earlier commit")
    parser.add_argument("--features", type=int, default=400)
    arguments = parser.parse_args()
    before = json.loads(arguments.before.read_text(encoding="utf-8"))["models"] if arguments.before else []
    earlier = {row["model"]: row for row in before}
    result: dict[str, Any] = {"machine": machine.describe(), "features": arguments.features, "bars": BARS, "models": []}
    if torch.cuda.is_available():
        result["machine"]["gpu"] = torch.cuda.get_device_name()
    graph = pairre.load_graph(GRAPH)
    for name in arguments.models or [model.name for model in models()]:
        row = measured(graph, name, arguments.features, arguments.quick)
        row |= {f"{key}_before": earlier[name][key] for key in BARS if name in earlier}
        row["met"] = all(row[key] <= bar for key, bar in BARS.items())
        result["models"].append(row)
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}, flush=True)
        machine.write("speed", result, arguments)


if __name__ == "__main__":
    main()
