"""What does every model reach, from one code base?

`small`: for each model a few settings are compared by validation MRR, the mean over UMLS and Countries S1, without the
test triples; with `--recipes` the best becomes the preset `small/MODEL` (`src/pairre/settings/presets/small.toml`).
It is then trained with three seeds and ranked on test, once.

`fb15k-237` and `wn18rr`: the presets `fb15k-237/MODEL` and `wn18rr/MODEL`, each of which says how it was chosen, on
test beside the figures of the paper's table. Those that are not named like a model (`complex-n3`) are run when asked
for.

The baseline of both counts: an entity scores by how often train has it on that side of that relation.

    PAIRRE_DATA=… python benchmarks/models.py PART [MODEL …] [--jobs N] [--recipes] [--keep | --json FILE]
"""

from __future__ import annotations

import json
import logging
import re
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

import machine
import pairre
from pairre.evaluation import Ranks, rank_both_sides, summarise
from pairre.graph import Graph
from pairre.models import Model, model_class, models
from pairre.rules import KINDS, mine
from pairre.settings import Recipe, from_values, presets
from pairre.support.device import pick_device

GRAPHS = ("umls", "countries-s1")
PRESETS = Path(__file__).resolve().parents[1] / "src" / "pairre" / "settings" / "presets" / "small.toml"
LARGE = ("fb15k-237", "wn18rr")
PAPER = {  # test MRR on FB15k-237 in the paper's table
    "transe": 0.294,
    "distmult": 0.241,
    "conve": 0.325,
    "complex": 0.247,
    "rotate": 0.338,
    "ote": 0.351,
    "gc-ote": 0.361,
    "pairre": 0.351,
}
ENTAILMENTS = [kind for kind in KINDS if kind != "composition"]  # rules of one relation and another
# Models with fewer features.
_NARROW = ("transr", "transparse-share", "transparse-separate", "se", "rescal", "ote", "gc-ote", "gc-ote-full")


def candidates(model: type[Model]) -> list[dict[str, Any]]:
    """Return what is compared for a model on small graphs, as sections of a recipe."""
    dim = 40 if model.name in _NARROW else 100
    slow = model.projects_entities or model.metric is None  # no kernels: fewer negatives
    found: list[dict[str, Any]] = []
    rates = (3e-2, 1e-1) if model.name == "kg2e" else (3e-3, 1e-2) if model.weight_parts else (1e-2, 3e-2)
    for lr in rates:
        train = {"batch": 512, "steps": 1000, "lr": lr, "schedule": "linear", "validate_every": 100, "patience": 0}
        if model.metric == "dot":
            for weight, reciprocal in ((1e-2, False), (3e-2, True), (1e-1, False), (1e-1, True)):
                found.append(
                    {
                        "model": {"name": model.name, "dim": dim, "init_range": 0.1, "reciprocal": reciprocal},
                        "loss": {"name": "cross-entropy", "subsampling": False},
                        "sampling": {"negatives": 0},
                        "regularizer": {"name": "n3", "weight": weight},
                        "train": train,
                    }
                )
        else:
            losses: list[dict[str, Any]] = [{"margin": margin} for margin in (3.0, 6.0, 12.0)]
            if model.metric is None:
                losses += [{"name": "cross-entropy", "temperature": temperature} for temperature in (1.0, 3.0)]
            tried = [(dim, loss) for loss in losses]
            if model.name == "kg2e":  # it overfits: more features are worse (docs/results/search-kg2e-2026-11-17.json)
                few = ((10, 3.0), (10, 5.0), (20, 5.0), (40, 3.0))
                tried = [(d, {"name": "cross-entropy", "temperature": temperature}) for d, temperature in few]
            for width, loss in tried:
                found.append(
                    {
                        "model": {"name": model.name, "dim": width},
                        "loss": loss,
                        "sampling": {"negatives": 64 if slow else 128},
                        "train": train,
                    }
                )
    return found


def trained(graph: Graph, values: dict[str, Any], seed: int, quick: bool) -> tuple[Model, float]:
    """Return the model with its best weights by validation, and how long that took."""
    train = {**values["train"], "seed": seed, **({"steps": 20, "validate_every": 20} if quick else {})}
    start = time.perf_counter()
    run = pairre.train(graph, from_values({**values, "train": train}, Recipe()), progress=False)
    return run.model, time.perf_counter() - start


def both(model: Model, graph: Graph, split: torch.Tensor) -> dict[str, float]:
    return summarise(rank_both_sides(model, split, graph.known))["both"]


def spread(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds, and the runs."""
    values = [run["mrr"] for run in runs]
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mrr_mean": statistics.mean(values), "mrr_std": deviation, "runs": runs}


def counting(graph: Graph) -> dict[str, float]:
    """Return the baseline: ranks of the test split by how often train has an entity on a side of a relation."""
    ranks = {}
    for side, column in (("head", 0), ("tail", 2)):
        counts = torch.zeros(graph.num_relations, graph.num_entities)
        pairs = graph.train[:, 1].long(), graph.train[:, column].long()
        counts.index_put_(pairs, torch.ones(len(graph.train)), accumulate=True)
        scores = counts[graph.test[:, 1].long()]
        true = scores.gather(1, graph.test[:, column, None].long())
        query, member = graph.known.side(side).known(graph.test)
        scores[query, member] = -1
        num_candidates = graph.num_entities - graph.known.side(side).count(graph.test) + 1
        higher, equal = (scores > true).sum(1), (scores == true).sum(1)
        ranks[side] = Ranks(higher, equal, num_candidates)
    return summarise(ranks)["both"]


def small(name: str, num_seeds: int, quick: bool) -> dict[str, Any]:
    """Return the search of one model's recipe and what it reaches."""
    graphs = {graph: pairre.load_graph(graph) for graph in GRAPHS}
    search = []
    for values in candidates(model_class(name)):
        found = {}
        for graph_name, graph in graphs.items():
            blind = graph.without_test()  # test triples are not even in the filter
            fitted, _ = trained(blind, values, 0, quick)
            found[graph_name] = both(fitted, blind, graph.valid)["mrr"]
        search.append({"settings": values, "valid_mrr": found, "mean": statistics.mean(found.values())})
    best = max(search, key=lambda entry: entry["mean"])["settings"]
    test = {}
    for graph_name, graph in graphs.items():
        runs = []
        for seed in range(num_seeds):
            fitted, seconds = trained(graph, best, seed, quick)
            runs.append({"seed": seed, "seconds": seconds, **both(fitted, graph, graph.test)})
        test[graph_name] = spread(runs)
    return {"model": name, "recipe": best, "device": pick_device().type, "test": test, "search": search}


def large(graph_name: str, name: str, num_seeds: int, quick: bool) -> dict[str, Any]:
    """Return what a preset for a large graph reaches."""
    graph = pairre.load_graph(graph_name)
    recipe = f"{graph_name}/{name}" if name != "pairre" else graph_name
    rules = mine(graph, ENTAILMENTS) if name == "complex-nne-aer" else None  # of train; none are published
    runs = []
    for seed in range(num_seeds):
        start = time.perf_counter()
        changes = [f"train.seed={seed}", *(["train.steps=100", "train.validate_every=100"] if quick else [])]
        run = pairre.train(graph, recipe, overrides=changes, rules=rules, progress=False)
        seconds = time.perf_counter() - start
        valid = both(run.model, graph, graph.valid)["mrr"]
        runs.append({"seed": seed, "seconds": seconds, "valid_mrr": valid, **both(run.model, graph, graph.test)})
    paper = PAPER.get(name) if graph_name == "fb15k-237" else None
    return {"model": name, "recipe": recipe, "paper_mrr": paper, "test": {graph_name: spread(runs)}}


def with_preset(text: str, values: dict[str, Any]) -> str:
    """Return the text of a file of presets in which the table of one model has new values."""
    name = values["model"]["name"]
    title = name if re.fullmatch(r"[\w-]+", name) else json.dumps(name)
    lines = [f"[{title}]"]
    for section, entries in values.items():
        lines += [
            f"{section}.{key} = {json.dumps(value)}"
            for key, value in entries.items()
            if key != "name" or section != "model"
        ]
    heading, *tables = re.split(r"\n(?=\[)", text.rstrip("\n"))
    others = [table.rstrip("\n") for table in tables if not table.startswith(f"[{title}]\n")]
    return "\n\n".join([heading.rstrip("\n"), *sorted([*others, "\n".join(lines)])]) + "\n"


PARTS = {"small": small, **{name: partial(large, name) for name in LARGE}}


def main() -> None:
    """Measure the models that were asked for, each in a process of its own."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all of them by default")
    parser.add_argument("--recipes", action="store_true", help="also write the recipes that ship")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    logging.disable()
    if arguments.worker:
        job = json.loads(arguments.worker)
        machine.answer(PARTS[job["part"]](job["model"], job["seeds"], job["quick"]))
        return
    if not arguments.part:
        parser.error(f"say which part: {' or '.join(PARTS)}")
    result: dict[str, Any] = {"machine": machine.describe(), "part": arguments.part, "models": []}
    if torch.cuda.is_available():
        result["machine"]["gpu"] = torch.cuda.get_device_name()
    graphs = GRAPHS if arguments.part == "small" else (arguments.part,)
    result["counting"] = {name: counting(pairre.load_graph(name)) for name in graphs}
    print("counting", {name: round(m["mrr"], 3) for name, m in result["counting"].items()}, flush=True)
    wanted = arguments.models or [
        m.name for m in models() if arguments.part == "small" or f"{arguments.part}/{m.name}" in presets()
    ]
    jobs = [
        {"part": arguments.part, "model": name, "seeds": arguments.seeds, "quick": arguments.quick} for name in wanted
    ]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for row in pool.map(lambda job: machine.fresh_process(__file__, job), jobs):
            result["models"].append(row)
            print(row["model"], {name: round(t["mrr_mean"], 4) for name, t in row["test"].items()}, flush=True)
            if arguments.recipes and arguments.part == "small" and not arguments.quick:
                PRESETS.write_text(with_preset(PRESETS.read_text(encoding="utf-8"), row["recipe"]), encoding="utf-8")
            machine.write(f"models-{arguments.part}", result, arguments)


if __name__ == "__main__":
    main()
