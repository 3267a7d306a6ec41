"""Do rules help? PairRE plain, tied and with a penalty, the same seeds and settings, on test.

`sports`: the two rules of the paper, tied, beside its figures; the settings are the recipe's, which were chosen for the
plain model on splits of train (`small_graphs.py`). `dbpedia-music`: rules mined from train, tied and as a penalty;
the margin is chosen for the plain model. `fb15k`: only the weight of the 535 rules of ComplEx-NNE-AER, with a
smaller model than the paper's; `pairre reproduce fb15k-rules` compares. What is chosen here (these, and the weight μ of
penalties) is chosen by validation MRR with the first seed.

    PAIRRE_DATA=folder python benchmarks/rules_training.py PART [--device cuda] [--quick] [--keep | --json FILE]
"""

from __future__ import annotations

import logging
import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import machine
import pairre
from pairre.graph import Graph
from pairre.rules import Rule, mine, read_rules
from pairre.runs import Run
from pairre.settings import Recipe, override

METRICS = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10", "mr")
PAPER = {"sports": {"plain": {"mrr": 0.468, "hits_at_1": 0.416}, "tied": {"mrr": 0.475, "hits_at_1": 0.432}}}
WEIGHTS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
SMALLER = ["model.dim=500", "train.steps=30000", "train.lr=1e-3", "train.schedule=linear", "train.validate_every=15000"]
Rules = Sequence[Rule] | None
Variants = dict[str, tuple[list[str], Rules]]  # settings and rules by name


class Part:
    """A graph, and how it is trained on."""

    def __init__(self, name: str, device: str, quick: bool) -> None:
        self.graph: Graph = pairre.load_graph(name)
        self.device = device
        self.always = ["train.steps=100"] if quick else []
        self.num_seeds = {"sports": 10}.get(name, 3) if not quick else 2

    def train(self, recipe: Recipe, settings: list[str], rules: Rules, seeds: Sequence[int]) -> list[Run]:
        """Return a run for each seed."""
        options = {"overrides": [*settings, *self.always], "rules": rules, "device": self.device, "progress": False}
        return pairre.train_seeds(self.graph, recipe, seeds=seeds, **options)

    def choose(self, recipe: Recipe, choices: list[list[str]], rules: Rules = None) -> dict[str, Any]:
        """Return settings by validation MRR."""
        found = []
        for settings in choices:
            run = self.train(recipe, settings, rules, [0])[0]
            found.append(max(entry["valid"]["mrr"] for entry in run.history if "valid" in entry))
            print(f"{self.graph.name:14} {' '.join(settings):40} valid MRR {found[-1]:.4f}", flush=True)
        best = max(range(len(choices)), key=found.__getitem__)
        return {"settings": choices[best], "all": [[*c, mrr] for c, mrr in zip(choices, found, strict=True)]}

    def tested(self, recipe: Recipe, settings: list[str], rules: Rules) -> list[dict[str, float]]:
        """Metrics on test of every seed: a GPU trains all at once, a CPU one on each core."""
        seeds = range(self.num_seeds)
        if self.device != "cpu":
            return [pairre.evaluate(run)["both"] for run in self.train(recipe, settings, rules, seeds)]
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), initializer=on_one_core) as pool:
            jobs = [pool.submit(tested_alone, self, recipe, settings, rules, seed) for seed in seeds]
            return [job.result() for job in jobs]

    def compare(self, recipe: Recipe, variants: Variants) -> dict[str, Any]:
        """Every variant with the same seeds, on test."""
        results: dict[str, Any] = {}
        for name, (settings, rules) in variants.items():
            start = time.perf_counter()
            both = self.tested(recipe, settings, rules)
            seconds = time.perf_counter() - start
            values = {metric: [b[metric] for b in both] for metric in METRICS}
            test = {m: {"mean": statistics.mean(v), "std": statistics.stdev(v), "all": v} for m, v in values.items()}
            results[name] = {"settings": settings, "rules": len(rules or ()), "test": test, "seconds": seconds}
            paper = PAPER.get(self.graph.name, {}).get(name, {})
            figures = (
                f"{m} {test[m]['mean']:.4f} ± {test[m]['std']:.4f}" + (f" (paper {paper[m]})" if m in paper else "")
                for m in METRICS[:4]
            )
            print(f"{self.graph.name:14} {name:6} {'  '.join(figures)}  {seconds:.0f} s", flush=True)
        for name in list(results)[1:]:
            pairs = (results[v]["test"]["mrr"]["all"] for v in (name, "plain"))
            gains = [one - other for one, other in zip(*pairs, strict=True)]
            results[name]["mrr_gain"] = {"mean": statistics.mean(gains), "std": statistics.stdev(gains)}
        return results


def on_one_core() -> None:
    logging.disable()
    torch.set_num_threads(1)


def tested_alone(part: Part, recipe: Recipe, settings: list[str], rules: Rules, seed: int) -> dict[str, float]:
    both: dict[str, float] = pairre.evaluate(part.train(recipe, settings, rules, [seed])[0])["both"]
    print(f"{part.graph.name:14} seed {seed} MRR {both['mrr']:.4f}", flush=True)
    return both


def rules_of(name: str) -> list[Rule]:
    return read_rules(Path(os.environ["PAIRRE_DATA"]) / name / "rules.tsv")


def sports(part: Part) -> dict[str, Any]:
    recipe, rules = pairre.load_recipe("sports"), rules_of("sports")
    return {
        "paper": PAPER["sports"],
        **part.compare(recipe, {"plain": ([], None), "tied": (["rules.mode=tie"], rules)}),
    }


def fb15k(part: Part) -> dict[str, Any]:
    recipe = override(pairre.load_recipe("fb15k"), SMALLER)
    choices = [[f"rules.weight={weight}"] for weight in (0.0, *WEIGHTS)]
    return {"recipe": asdict(recipe), "chosen": part.choose(recipe, choices, rules_of("fb15k"))}


def dbpedia_music(part: Part) -> dict[str, Any]:
    rules = mine(part.graph)
    base = pairre.default_recipe(part.graph)
    plain = part.choose(base, [[f"loss.margin={margin}"] for margin in (6.0, 9.0, 12.0)])
    recipe = override(base, plain["settings"])
    weight = part.choose(recipe, [[f"rules.weight={weight}"] for weight in WEIGHTS[::2]], rules)
    variants: Variants = {
        "plain": ([], None),
        "tied": (["rules.mode=tie"], rules),
        "soft": (weight["settings"], rules),
    }
    mined = [{"rule": str(r), "confidence": r.confidence} for r in rules]
    return {"mined": mined, "chosen": [plain, weight], **part.compare(recipe, variants)}


PARTS = {"sports": sports, "fb15k": fb15k, "dbpedia-music": dbpedia_music}


def main() -> None:
    parser = machine.options(__doc__ or "")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    logging.disable()
    where = machine.describe()
    if arguments.device != "cpu":
        where["gpu"] = torch.cuda.get_device_name()
    result = PARTS[arguments.part](Part(arguments.part, arguments.device, arguments.quick))
    machine.write(f"rules-training-{arguments.part}", {"machine": where, **result}, arguments)


if __name__ == "__main__":
    main()
