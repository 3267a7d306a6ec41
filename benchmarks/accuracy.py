"""How accurate are the best models of a graph, alone and together?

For each graph and seed: every member is trained with its recipe, one that is `taught` by an ensemble of those before
it; then an ensemble is made of them, and one that has the rules of train, too, closed ones and those that name
entities; at the end such ensembles of the members of all seeds. `GRAPHS` says what is trained. All settings and weights
were chosen on validation; each figure of test is ranked once, for what is listed here. The result is written after
every seed, so that a run that is stopped keeps what it has.

    PAIRRE_DATA=… python benchmarks/accuracy.py [GRAPH …] [--seeds 3] [--no-rules] [--keep | --json FILE]
"""

from __future__ import annotations

import logging
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import machine
import pairre
from pairre.graph import Graph
from pairre.rules import Rule, mine

# By graph and member: a recipe, and changes of it.
GRAPHS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "codex-s": {"complex": ("codex-s/complex-n3", {}), "pairre": ("codex-s", {})},
    "wn18rr": {"complex": ("wn18rr/complex-n3", {}), "pairre": ("wn18rr", {})},
    "fb15k-237": {
        "complex": ("fb15k-237/complex-n3", {}),
        "pairre": ("fb15k-237-best", {"train.steps": 40_000, "train.validate_every": 10_000}),
        "pairre, taught": ("fb15k-237/pairre-taught", {}),
    },
    "fb15k": {"complex": ("fb15k/complex-n3", {}), "pairre": ("fb15k-best", {})},
}
METRICS = ("mrr", "hits_at_1", "hits_at_10")


def measured(run: pairre.Run) -> dict[str, dict[str, float]]:
    """Return the metrics of a run on validation and test."""
    return {split: {key: pairre.evaluate(run, split)["both"][key] for key in METRICS} for split in ("valid", "test")}


def timed(work: Callable[[], pairre.Run], note: str) -> tuple[pairre.Run, dict[str, Any]]:
    """Return a run with its metrics and the seconds that it took, and print its validation MRR."""
    start = time.perf_counter()
    run = work()
    seconds = time.perf_counter() - start
    found = {"seconds": round(seconds, 1), **measured(run)}
    print(f"{note}: valid {found['valid']['mrr']:.4f}, {seconds:.0f} s", flush=True)
    return run, found


def member(
    graph: Graph, name: str, before: list[pairre.Run], seed: int, quick: bool
) -> tuple[pairre.Run, dict[str, Any]]:
    """Train a member, which those before it may teach; return it with its metrics and its curve on validation."""
    recipe, changes = GRAPHS[graph.name][name]
    published = Path(os.environ.get("PAIRRE_DATA", "")) / graph.name / "rules.tsv"
    settings = {**changes, "train.seed": seed, **({"train.epochs": 0, "train.steps": 40} if quick else {})}
    start, curve = time.perf_counter(), []

    def note(step: int, mrr: float) -> None:
        curve.append({"step": step, "valid_mrr": round(mrr, 4), "seconds": round(time.perf_counter() - start, 1)})

    def work() -> pairre.Run:
        rules = str(published) if pairre.load_recipe(recipe).rules.weight and published.is_file() else None
        teacher = pairre.ensemble(before) if name.endswith("taught") else None
        return pairre.train(
            graph, recipe, overrides=settings, rules=rules, teacher=teacher, progress=False, on_validation=note
        )

    run, found = timed(work, f"{graph.name} seed {seed} {name}")
    return run, {**found, "curve": curve}


def of_one_seed(
    graph: Graph, rules: list[Rule] | None, seed: int, quick: bool
) -> tuple[list[pairre.Run], dict[str, Any]]:
    """Return the members of a graph, and the metrics of each and of what is made of them."""
    runs, found = [], {}
    for name in GRAPHS[graph.name]:
        run, found[name] = member(graph, name, runs, seed, quick)
        runs.append(run)
    return runs, found | together(runs, rules, f"{graph.name} seed {seed}")


def together(runs: list[pairre.Run], rules: list[Rule] | None, note: str) -> dict[str, Any]:
    """Return the metrics of an ensemble of runs, and of one with rules if they are given."""
    _, found = timed(partial(pairre.ensemble, runs), f"{note} ensemble")
    if rules is None:
        return {"ensemble": found}
    _, with_rules = timed(partial(pairre.ensemble, runs, rules=rules, entity_rules=True), f"{note} with rules")
    return {"ensemble": found, "ensemble, rules": with_rules}


def summary(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean and the standard deviation of MRR over seeds, by what was measured and split."""
    found: dict[str, Any] = {}
    for name in seeds[0]:
        for split in ("valid", "test"):
            values = [seed[name][split]["mrr"] for seed in seeds]
            spread = statistics.stdev(values) if len(values) > 1 else None
            found.setdefault(name, {})[split] = {"mrr": statistics.mean(values), "std": spread}
    return found


def main() -> None:
    """Measure the graphs that were asked for."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", help=f"all by default: {', '.join(GRAPHS)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--no-rules", action="store_true", help="leave rules out, which the CPU applies to queries")
    arguments = parser.parse_args()
    logging.disable()
    result: dict[str, Any] = {"machine": machine.describe(), "graphs": {}}
    for name in arguments.graphs or GRAPHS:
        graph = pairre.load_graph(name)
        start = time.perf_counter()
        rules = None if arguments.no_rules else mine(graph, min_support=2, min_confidence=0.02)
        mining = {"rules": len(rules or ()), "seconds": round(time.perf_counter() - start, 1)}
        members: list[pairre.Run] = []
        seeds: list[dict[str, Any]] = []
        for seed in range(1 if arguments.quick else arguments.seeds):
            runs, found = of_one_seed(graph, rules, seed, arguments.quick)
            members += runs
            seeds.append(found)
            recipes = {member: list(of) for member, of in GRAPHS[name].items()}
            result["graphs"][name] = {
                "members": recipes, "mined": mining, "mrr": summary(seeds), "seeds": seeds
            }  # fmt: skip
            machine.write("accuracy", result, arguments)
        result["graphs"][name]["all seeds"] = together(members, rules, f"{name} all seeds")
        machine.write("accuracy", result, arguments)
        for what, splits in result["graphs"][name]["mrr"].items():
            print(name, what, {split: round(of["mrr"], 4) for split, of in splits.items()}, flush=True)


if __name__ == "__main__":
    main()
