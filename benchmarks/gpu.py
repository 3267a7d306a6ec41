"""How fast does PairRE train and rank on this GPU, from a small graph to the largest that fits?

Times are wall clock around a synchronised device. A step is everything: batch, negatives, false-negative mask, loss,
gradients, optimiser. The evaluation is the whole filtered test split, both sides.

    PAIRRE_DATA=… python benchmarks/gpu.py [PART …] [--quick] [--keep | --json FILE]

Parts: fb15k-237, published, shapes, seeds, storage; all of them by default. `against.py` compares two
checkouts, `roofline.py` looks at single kernels.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

import machine
import pairre
from pairre.evaluation import rank_both_sides, summarise
from pairre.graph import Graph
from pairre.graph.vocabulary import Vocabulary
from pairre.settings import Recipe, override
from pairre.training.step import Trainer

DEVICE = torch.device("cuda:0")


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Median over calls, each with the device idle before and after."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def step_ms(trainer: Trainer, num: int) -> float:
    """Steady state of a step: the time of many, asked for one after another."""
    trainer.advance(4 * trainer.steps_per_launch)  # compiles and records

    def many() -> None:
        trainer.advance(num)

    return 1e3 * seconds(many, 3) / num


def fb15k_237(quick: bool) -> dict[str, Any]:
    """Measure a step with the published settings, the evaluation of the test split, peak memory."""
    graph = pairre.load_graph("fb15k-237")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    trainer = Trainer(graph, pairre.load_recipe("fb15k-237"), DEVICE)
    step = step_ms(trainer, 200 if quick else 2000)
    peak = torch.cuda.max_memory_allocated() / 1e9
    trainer.flush()
    rank_both_sides(trainer.model, graph.test, graph.known)
    evaluation = seconds(lambda: rank_both_sides(trainer.model, graph.test, graph.known), 5)
    reserved = torch.cuda.max_memory_reserved() / 1e9
    return {
        "step_ms": step,
        "evaluation_s": evaluation,
        "peak_memory_of_training_gb": peak,
        "peak_memory_reserved_gb": reserved,
    }


def published(quick: bool) -> dict[str, Any]:
    """Time the command line from launch to the test metrics, in a new process; the first has to compile kernels."""
    steps = ["--set", "train.steps=2000"] if quick else []
    runs = []
    for seed in range(1 if quick else 3):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pairre", "train", "fb15k-237", "--recipe", "fb15k-237"]
            command += ["--out", f"{folder}/run", "--set", f"train.seed={seed}", "--device", "cuda", *steps]
            caches = ("TRITON_CACHE_DIR", "NUMBA_CACHE_DIR", "PAIRRE_CACHE") if seed == 0 else ()
            fresh = {name: f"{folder}/{name}" for name in caches}
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env={**os.environ, **fresh})
            wall = time.perf_counter() - start
            metrics = json.loads(Path(folder, "run", "metrics.json").read_text(encoding="utf-8"))
        runs.append({"seed": seed, "kernels_compiled": seed == 0, "wall_clock_s": wall, **metrics["both"]})
        print(runs[-1], flush=True)
    return {"command": " ".join(command[1:7]), "runs": runs}


def synthetic(num_entities: int, num_relations: int, num_triples: int) -> Graph:
    """Return a graph of a given shape; the structure of its triples does not matter for speed."""
    random = torch.Generator(DEVICE).manual_seed(0)

    def ids(below: int) -> torch.Tensor:
        return torch.randint(below, (num_triples,), generator=random, device=DEVICE, dtype=torch.int32)

    triples = torch.stack([ids(num_entities), ids(num_relations), ids(num_entities)], 1).cpu()
    names = [Vocabulary(pa.array(np.arange(n)).cast(pa.string()), "name") for n in (num_entities, num_relations)]
    return Graph("synthetic", names[0], names[1], triples, triples[:1000].clone(), triples[:1000].clone())


SHAPES = {  # entities, relations, triples
    "ogbl-wikikg2": (2_500_604, 535, 16_109_182),
    "WikiKG90M": (91_230_610, 1_387, 601_062_811),
}


def shapes(quick: bool) -> list[dict[str, Any]]:
    """Measure a step on graphs of other sizes, d 200, batch 512, 128 negatives: it must not depend on the size."""
    rows = []
    for name, (num_entities, num_relations, num_triples) in SHAPES.items():
        if quick and name == "WikiKG90M":
            continue
        start = time.perf_counter()
        graph = synthetic(num_entities, num_relations, num_triples)
        made = time.perf_counter() - start
        optimizers = ["train.optimizer=adagrad", "train.update_rows=touched", "train.update_rows=all"]
        for setting in optimizers[: 3 if name == "ogbl-wikikg2" else 1]:
            changes = ["model.dim=200", "train.batch=512", "sampling.negatives=128", "train.steps=1000000", setting]
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            start = time.perf_counter()
            trainer = Trainer(graph, override(Recipe(), changes), DEVICE)
            torch.cuda.synchronize()
            ready = time.perf_counter() - start
            row: dict[str, Any] = {"shape": name, "setting": setting, "graph_s": made, "trainer_s": ready}
            first = step_ms(trainer, 50)
            row |= {"step_ms": step_ms(trainer, 500 if quick else 3000), "first_steps_ms": first}
            row["peak_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
            row["mean_loss"] = trainer.mean_loss(trainer.progress.step)
            rows.append(row)
            print(row, flush=True)
            del trainer
    return rows


def seeds(quick: bool) -> dict[str, Any]:
    """Several seeds of a small graph at once against one after another, with the recipe of the graph."""
    graph = pairre.load_graph("umls")
    settings: dict[str, Any] = {"overrides": ["train.patience=0"], "progress": False, "device": "cuda"}
    if not quick:
        settings["overrides"].append("train.steps=10000")
    pairre.train_seeds(graph, "umls", seeds=[0], **settings)  # compiles
    result: dict[str, Any] = {"graph": "umls", "recipe": "umls", **settings}
    for num in (1, 2, 4, 8, 16):
        torch.cuda.synchronize()
        started = time.perf_counter()
        pairre.train_seeds(graph, "umls", seeds=range(num), **settings)
        result[f"{num}_at_once_s"] = time.perf_counter() - started
    return result


def storage(quick: bool) -> list[dict[str, Any]]:
    """Measure what half precision for the entity table does to the metrics and to a step."""
    rows = []
    for kind in ("float32", "float16", "bfloat16"):
        changes = [f"model.storage={kind}", "model.dim=400", "train.steps=20000", "train.lr=2e-4"]
        if quick:
            changes.append("train.steps=2000")
        recipe = override(pairre.load_recipe("fb15k-237"), changes)
        graph = pairre.load_graph("fb15k-237")
        start = time.perf_counter()
        run = pairre.train(graph, recipe, device="cuda", progress=False)
        wall = time.perf_counter() - start
        both = summarise(rank_both_sides(run.model, graph.valid, graph.known))["both"]
        rows.append({"storage": kind, "dim": 400, "steps": recipe.train.steps, "train_s": wall, "valid": both})
        print(rows[-1], flush=True)
    return rows


PARTS: dict[str, Callable[[bool], Any]] = {
    "fb15k-237": fb15k_237,
    "published": published,
    "shapes": shapes,
    "seeds": seeds,
    "storage": storage,
}


def main() -> None:
    """Measure the parts that were asked for."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; parts: {', '.join(PARTS)}")
    result: dict[str, Any] = {"machine": {**machine.describe(), "gpu": torch.cuda.get_device_name()}}
    for name in arguments.parts or PARTS:
        result[name] = PARTS[name](arguments.quick)
        print(name, result[name], flush=True)
        machine.write("gpu", result, arguments)  # after each part, so that a later one cannot lose it


if __name__ == "__main__":
    main()
