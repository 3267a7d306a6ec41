"""What does every model reach on small graphs with a recipe chosen for it, and how far above counting is that?

For each model a few settings are compared by validation MRR, the mean over UMLS and Countries S1; with `--recipes` the
best is written as `src/pairre/recipes/MODEL.toml`. It is then trained with three seeds and ranked on test, once. The
baseline counts: an entity scores by how often train has it on that side of that relation.

    PAIRRE_DATA=… python benchmarks/models.py [MODEL …] [--quick] [--recipes] [--keep | --json FILE]
"""

from __future__ import annotations

import json
import logging
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import machine
import pairre
from pairre.evaluate import Ranks, evaluate_triples, summarise
from pairre.graph import Graph
from pairre.models import MODELS, Model
from pairre.recipe import Recipe, from_values

GRAPHS = ("umls", "countries-s1")
SEEDS = range(3)
RECIPES = Path(__file__).resolve().parents[1] / "src" / "pairre" / "recipes"
_MATRICES = ("transr", "se", "rescal", "ote")  # relations as matrices: fewer features


def settings(model: type[Model]) -> list[dict[str, Any]]:
    """What is compared for a model, as sections of a recipe."""
    dim = 50 if model.name in _MATRICES else 100
    slow = model.projected or model.kind is None  # no kernels: fewer negatives
    shared: dict[str, Any] = {"batch": 512, "steps": 400, "schedule": "linear", "patience": 0, "validate_every": 400}
    found = []
    for lr in (1e-2, 5e-2):
        if model.kind == "dot":
            for weight in (0.0, 1e-2):
                found.append(
                    {
                        "model": {"name": model.name, "dim": dim, "init_range": 0.1},
                        "loss": {"name": "cross-entropy"},
                        "sampling": {"negatives": 0},
                        "regularizer": {"name": "n3", "weight": weight},
                        "train": {**shared, "lr": lr},
                    }
                )
        else:
            for margin in (2.0, 6.0):
                found.append(
                    {
                        "model": {"name": model.name, "dim": dim},
                        "loss": {"margin": margin},
                        "sampling": {"negatives": 32 if slow else 128},
                        "train": {**shared, "lr": lr},
                    }
                )
    return found


def trained(graph: Graph, values: dict[str, Any], seed: int, quick: bool) -> tuple[Model, float]:
    """The model after its last step, and how long that took."""
    train = {**values["train"], "seed": seed, **({"steps": 20, "validate_every": 20} if quick else {})}
    start = time.perf_counter()
    run = pairre.train(graph, from_values({**values, "train": train}, Recipe()), device="cpu", progress=False)
    return run.model, time.perf_counter() - start


def both(model: Model, graph: Graph, split: torch.Tensor) -> dict[str, float]:
    return summarise(evaluate_triples(model, split, graph.known))["both"]


def counting(graph: Graph) -> dict[str, float]:
    """The baseline: ranks of the test split by how often train has an entity on a side of a relation."""
    ranks = {}
    for side, column in (("head", 0), ("tail", 2)):
        counts = torch.zeros(graph.num_relations, graph.num_entities)
        pairs = graph.train[:, 1].long(), graph.train[:, column].long()
        counts.index_put_(pairs, torch.ones(len(graph.train)), accumulate=True)
        scores = counts[graph.test[:, 1].long()]
        true = scores.gather(1, graph.test[:, column, None].long())
        query, member = graph.known.known(graph.test, side)
        scores[query, member] = -1
        candidates = graph.num_entities - graph.known.count(graph.test, side) + 1
        higher, equal = (scores > true).sum(1), (scores == true).sum(1)
        ranks[side] = Ranks(higher, equal, candidates)
    return summarise(ranks)["both"]


def measure(model: type[Model], graphs: dict[str, Graph], quick: bool) -> dict[str, Any]:
    """The search and what the best setting reaches."""
    search = []
    for values in settings(model):
        found = {}
        for name, graph in graphs.items():
            blind = replace(graph, test=graph.test[:0])  # test triples are not even in the filter
            fitted, _ = trained(blind, values, 0, quick)
            found[name] = both(fitted, blind, graph.valid)["mrr"]
        search.append({"settings": values, "valid_mrr": found, "mean": statistics.mean(found.values())})
    best = max(search, key=lambda entry: entry["mean"])["settings"]
    test: dict[str, Any] = {}
    for name, graph in graphs.items():
        runs = []
        for seed in SEEDS:
            fitted, seconds = trained(graph, best, seed, quick)
            runs.append({"seed": seed, "seconds": seconds, **both(fitted, graph, graph.test)})
        values = [run["mrr"] for run in runs]
        test[name] = {"mrr_mean": statistics.mean(values), "mrr_std": statistics.stdev(values), "runs": runs}
    return {"model": model.name, "recipe": best, "test": test, "search": search}


def toml(values: dict[str, Any]) -> str:
    lines = [f"# {values['model']['name']} on small graphs, chosen on validation splits by benchmarks/models.py."]
    for section, entries in values.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in entries.items()]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Measure the models that were asked for."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all of them by default")
    parser.add_argument("--recipes", action="store_true", help="also write the recipes that ship")
    arguments = parser.parse_args()
    logging.disable()
    graphs = {name: pairre.load_graph(name) for name in GRAPHS}
    result: dict[str, Any] = {
        "machine": machine.describe(),
        "counting": {name: counting(graph) for name, graph in graphs.items()},
        "models": [],
    }
    print("counting", {name: round(m["mrr"], 3) for name, m in result["counting"].items()}, flush=True)
    for model in MODELS:
        if arguments.models and model.name not in arguments.models:
            continue
        row = measure(model, graphs, arguments.quick)
        result["models"].append(row)
        reached = {name: f"{t['mrr_mean']:.3f} ± {t['mrr_std']:.3f}" for name, t in row["test"].items()}
        print(model.name, reached, row["recipe"]["loss"], row["recipe"]["train"]["lr"], flush=True)
        if arguments.recipes and not arguments.quick:
            (RECIPES / f"{model.name}.toml").write_text(toml(row["recipe"]), encoding="utf-8")
        machine.write("models", result, arguments)


if __name__ == "__main__":
    main()
