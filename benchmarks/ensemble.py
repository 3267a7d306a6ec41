"""Is an ensemble of PairRE and ComplEx better than each, with rules too, and can one PairRE learn from it?

Small settings, so that it takes two cores about an hour: figures say what an ensemble adds, not how good a model can
be. Weights are chosen on the validation split; test figures are reported once, for what is listed here. With
`--folder`, runs that are there already are not trained again.

    PAIRRE_DATA=… python benchmarks/ensemble.py [--folder RUNS] [--keep | --json FILE]
"""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import machine
import pairre
from pairre.evaluation import rank_both_sides, summarise
from pairre.graph import Graph, Split
from pairre.rules import Rule, mine

PRODUCTS = {
    "regularizer.name": "n3-modulus",
    "train.optimizer": "elementwise-adagrad",
    "train.schedule": "constant",
    "train.batch": 1000,
    "sampling.filter": False,
    "loss.relation_weight": 0.125,
    "loss.margin": 0,
}
STUDENT = {
    "model.dim": 200,
    "loss.name": "cross-entropy",
    "loss.temperature": 2,
    "loss.subsampling": False,
    "distill.weight": 4,
    "train.lr": 5e-3,
}
# By graph and member: a recipe, and what differs from it. One that is `taught` learns from an ensemble of those before.
MEMBERS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "umls": {
        "pairre": ("umls", {"train.steps": 600}),
        "complex": ("small/complex", {**PRODUCTS, "train.lr": 0.1, "train.steps": 600}),
        "pairre, taught": ("umls", {**STUDENT, "sampling.negatives": 0, "train.steps": 600}),
    },
    "codex-s": {
        "pairre": (
            "codex-s",
            {"model.dim": 200, "train.steps": 2000, "train.lr": 3e-3, "train.validate_every": 400},
        ),
        "complex": (
            "small/complex",
            {
                **PRODUCTS,
                "model.dim": 100,
                "model.init_range": 0.01,
                "regularizer.weight": 0.01,
                "train.lr": 0.05,
                "train.epochs": 25,
                "train.validate_every": 330,
            },
        ),
        "pairre, taught": (
            "codex-s",
            {**STUDENT, "sampling.negatives": 256, "train.steps": 2400, "train.validate_every": 400},
        ),
    },
}
SEEDS = range(3)
METRICS = ("mrr", "hits_at_1", "hits_at_10")


def trained(graph: Graph, recipe: str, settings: dict[str, Any], path: Path, **options: Any) -> pairre.Run:
    """Return the run of a folder, trained now if there is none, or to its end if it is not finished."""
    if (path / "metrics.json").exists():
        return pairre.load_run(path, "cpu")
    options |= {"out": path, "resume": path.exists(), "device": "cpu", "progress": False}
    return pairre.train(graph, recipe, overrides=settings, **options)


def measured(run: pairre.Run) -> dict[str, Any]:
    """Return the metrics of a run on both splits."""
    return {split: _metrics(run, split) for split in ("valid", "test")}


def _metrics(run: pairre.Run, split: Split) -> dict[str, float]:
    """Return the metrics of a run on a split."""
    both = summarise(rank_both_sides(run.model, run.graph.split(split), run.graph.known))["both"]
    return {key: both[key] for key in METRICS}


def of_one_seed(graph: Graph, seed: int, folder: Path, rules: list[Rule]) -> dict[str, Any]:
    """Return the figures of the members of a seed, and of what they are together."""
    members: dict[str, pairre.Run] = {}
    for model, (recipe, settings) in MEMBERS[graph.name].items():
        teacher = {"teacher": pairre.ensemble(members.values())} if model.endswith("taught") else {}
        settings = {**settings, "train.seed": seed}
        members[model] = trained(graph, recipe, settings, folder / f"{model}-{seed}", **teacher)
    found = {model: measured(run) for model, run in members.items()}
    alone, everyone = [members["pairre"], members["complex"]], list(members.values())
    ways: dict[str, tuple[list[pairre.Run], dict[str, Any]]] = {
        "both": (alone, {}),
        "both and rules": (alone, {"rules": rules}),
        "both and rules of both kinds": (alone, {"rules": rules, "entity_rules": True}),
        "all three and rules of both kinds": (everyone, {"rules": rules, "entity_rules": True}),
    }
    for name, (runs, options) in ways.items():
        started = time.perf_counter()
        run = pairre.ensemble(runs, **options)
        seconds = time.perf_counter() - started
        found[name] = {**measured(run), "seconds": round(seconds, 1), "chosen": run.origin}
    return found


def merged(folder: Path) -> dict[str, Any]:
    """Return the figures of the seeds of PairRE in one, and of all members of all seeds together."""
    runs = {
        model: [pairre.load_run(folder / f"{model}-{seed}", "cpu") for seed in SEEDS] for model in ("pairre", "complex")
    }
    every = [run for several in runs.values() for run in several]
    return {
        "pairre, merged": measured(pairre.merge(runs["pairre"])),
        "pairre, weighted": measured(pairre.ensemble(runs["pairre"])),
        "all seeds": measured(pairre.ensemble(every)),
    }


def summary(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean and the standard deviation of every figure."""
    found: dict[str, Any] = {}
    for name in seeds[0]:
        for split in ("valid", "test"):
            values = [result[name][split]["mrr"] for result in seeds]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            found.setdefault(name, {})[split] = {"mrr": statistics.mean(values), "std": spread}
    return found


def main() -> None:
    """Measure both graphs and write the result."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("--folder", type=Path, help="where runs are, or are kept")
    arguments = parser.parse_args()
    logging.disable()
    where = machine.describe()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in MEMBERS:
            graph = pairre.load_graph(name)
            folder = (arguments.folder or Path(scratch)) / name
            folder.mkdir(parents=True, exist_ok=True)
            rules = mine(graph)
            seeds = [of_one_seed(graph, seed, folder, rules) for seed in (SEEDS[:1] if arguments.quick else SEEDS)]
            results[name] = {"num_rules": len(rules), "members": MEMBERS[name], "seeds": seeds, "mean": summary(seeds)}
            if not arguments.quick:
                results[name]["together"] = merged(folder)
            for key, values in results[name]["mean"].items():
                print(
                    f"{name:8} {key:16} valid {values['valid']['mrr']:.4f}  test {values['test']['mrr']:.4f}",
                    flush=True,
                )
    machine.write("ensemble-cpu", {"machine": where, "graphs": results}, arguments)


if __name__ == "__main__":
    main()
