"""Which settings are better on a graph's validation split? A list of them, one seed each, all kept in a log.

`pairre tune` searches ranges by itself; this compares what one wants to know, and merged models. Test triples are never
ranked; they are known, as in any evaluation, and so not among the candidates.

    PAIRRE_DATA=… python benchmarks/search.py GRAPH --recipe NAME --set train.steps=30000 \\
        --try "" --try "loss.relation_weight=0.3" --try "loss.relation_weight=0.3 train.lr=1e-3" \\
        [--members 3] [--rules FILE] [--json FILE]
"""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any

import pairre  # first: it sets how OpenMP threads wait, which torch reads when it loads

# isort: split
import torch

import machine
from pairre.graph import Graph


def tried(graph: Graph, settings: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return validation MRR over a run, and what is reached when it is merged with other seeds."""
    members, start = arguments.members, time.perf_counter()
    runs = pairre.train_seeds(
        graph,
        arguments.recipe,
        seeds=range(members),
        overrides=settings,
        rules=arguments.rules,
        device=arguments.device,
        progress=False,
    )
    entry: dict[str, Any] = {
        "valid_mrr": [round(e["valid"]["mrr"], 4) for e in runs[0].history if "valid" in e],
        "loss": [e["loss"] for e in runs[0].history if "loss" in e][-1],
        "seconds": round(time.perf_counter() - start, 1),
    }
    entry["best"] = max(entry["valid_mrr"])
    if members > 1:
        entry["seeds"] = [max(e["valid"]["mrr"] for e in run.history if "valid" in e) for run in runs]
        entry["merged"] = pairre.evaluate(pairre.merge(runs), "valid")["both"]["mrr"]
    return entry


def main() -> None:
    """Try one after the other; what is not usable is written down as that."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("graph", help="a graph with a validation split")
    parser.add_argument("--recipe", help="what all of them start from; default: the settings for a graph of its size")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="changes all of them")
    parser.add_argument("--try", action="append", default=[], dest="tries", metavar="KEY=VALUE …", help="one of them")
    parser.add_argument("--members", type=int, default=1, help="seeds of each, also merged")
    parser.add_argument("--rules", metavar="FILE", help="rules that all of them follow")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none after so long")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    logging.disable()
    graph, started = pairre.load_graph(arguments.graph), time.perf_counter()
    always = [*arguments.set, "train.validate_triples=0", "train.patience=0"]
    if arguments.quick:
        always += ["train.steps=20", "train.validate_every=10"]
    described = machine.describe()
    described |= {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    log: list[dict[str, Any]] = []
    kept = {"machine": described, "graph": graph.name, "recipe": arguments.recipe, "rules": arguments.rules}
    kept |= {"settings": always, "tried": log}
    for changes in (text.split() for text in arguments.tries or [""]):
        if time.perf_counter() - started > arguments.seconds:
            print(f"no time for {' '.join(changes)}")
            break
        try:
            entry = tried(graph, [*always, *changes], arguments)
        except pairre.PairREError as error:
            entry = {"error": str(error)}
        log.append({"changes": changes, **entry})
        print(" ".join(changes) or "as it is", {k: v for k, v in entry.items() if k != "loss"}, flush=True)
        machine.write(f"search-{graph.name}", kept, arguments)


if __name__ == "__main__":
    main()
