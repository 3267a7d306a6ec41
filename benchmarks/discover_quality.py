"""How many of the triples that `pairre discover` names are true: facts of a graph are hidden, and found again or not?

A fifth of all facts, drawn at random, is hidden; a tenth of the rest is the validation split. A model is trained on
what remains, and the best new triples of the whole graph are compared with the hidden facts, among the plausible
pairs, those of observed heads, and all pairs. A triple that is true but
in no split counts as false, so precision is a lower bound. Three orders are compared: by probability, by raw score, and
the facts that mined rules imply by confidence (`pairre rules apply`).

    PAIRRE_DATA=… python benchmarks/discover_quality.py [--graphs codex-s umls atlas | --run RUN]
        [--quick] [--keep | --json FILE]
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import torch

import machine
import pairre
from pairre.graph import Graph
from pairre.inference.discover import Pairs, discover
from pairre.rules import apply_rules, mine
from pairre.runs import Run
from pairre.settings import override

AT = (10, 30, 100, 300, 1000, 3000)
SETTINGS = {
    "codex-s": ["model.dim=200", "train.lr=5e-3", "train.steps=3000"],
    "umls": [],
    "atlas": [],
}
RECIPES = {"codex-s": "codex-s", "umls": "umls"}
Triple = tuple[str, str, str]


def hide(graph: Graph, share: float = 0.2) -> tuple[Graph, set[Triple]]:
    """Return the graph without a share of its facts, which are also returned by name; its test split is empty."""
    triples = torch.unique(torch.cat([graph.train, graph.valid, graph.test]), dim=0)
    triples = triples[torch.randperm(len(triples), generator=torch.Generator().manual_seed(0))]
    hidden, rest = torch.tensor_split(triples, [int(share * len(triples))])
    valid, train = torch.tensor_split(rest, [len(rest) // 10])
    kept = replace(graph, train=train.contiguous(), valid=valid.contiguous(), test=train[:0], candidates={})
    return kept, set(graph.names(hidden))


def precision(found: Sequence[Any], hidden: set[Triple]) -> dict[str, Any]:
    """Return precision among the first k, and how many of the hidden facts all of them contain."""
    right = [(link.head, link.relation, link.tail) in hidden for link in found]
    at = {str(k): round(sum(right[:k]) / k, 4) for k in AT if k <= len(right)}
    return {"found": len(found), "precision_at": at, "hidden_found": sum(right)}


def by_relation(found: Sequence[pairre.Prediction], hidden: set[Triple]) -> dict[str, Any]:
    """Return, by relation, precision among as many links as facts of it are hidden."""
    links, counts = defaultdict(list), defaultdict(int)
    for _, relation, _ in hidden:
        counts[relation] += 1
    for link in found:
        links[link.relation].append((link.head, link.relation, link.tail) in hidden)
    return {
        relation: {"hidden": number, "r_precision": round(sum(links[relation][:number]) / number, 4)}
        for relation, number in sorted(counts.items(), key=lambda item: -item[1])
    }


def judge(name: str, quick: bool) -> dict[str, Any]:
    """Train on what is not hidden, and judge what is found by each order."""
    graph, hidden = hide(pairre.load_graph(name))
    recipe = pairre.load_recipe(RECIPES[name]) if name in RECIPES else pairre.default_recipe(graph)
    recipe = override(recipe, [*SETTINGS[name], *(["train.steps=300"] if quick else [])])
    return judge_run(pairre.train(graph, recipe, progress=False), hidden)


def judge_run(run: Run, hidden: set[Triple]) -> dict[str, Any]:
    """Judge what is found by each order, for a run whose graph does not have the hidden facts."""
    graph, recipe = run.graph, run.recipe
    largest = max(by_relation([], hidden).values(), key=lambda row: row["hidden"])["hidden"]
    each = {pairs: discover(run, k=largest, per_relation=True, pairs=pairs) for pairs in get_args(Pairs)}
    by_probability = {pairs: discover(run, k=AT[-1], pairs=pairs) for pairs in get_args(Pairs)}
    run.graph = replace(graph, valid=graph.valid[:0])  # without a validation split the order is that of scores
    run.calibration = None
    known = set(graph.names(graph.valid))
    scored = [a for a in discover(run, k=AT[-1] + len(known)) if (a.head, a.relation, a.tail) not in known]
    rules = mine(graph, min_support=5, min_confidence=0.1)
    relations = {pairs: by_relation(links, hidden) for pairs, links in each.items()}
    return {
        "train": len(graph.train),
        "valid": len(graph.valid),
        "hidden": len(hidden),
        "recipe": {"dim": recipe.model.dim, "steps": recipe.train.steps, "lr": recipe.train.lr},
        "valid_mrr": max(entry["valid"]["mrr"] for entry in run.history if "valid" in entry),
        "by_probability": {pairs: precision(links, hidden) for pairs, links in by_probability.items()},
        "by_score": precision(scored[: AT[-1]], hidden),
        "implied_by_rules": {"rules": len(rules), **precision(apply_rules(graph, rules, k=AT[-1]), hidden)},
        "r_precision": {
            pairs: round(sum(row["r_precision"] * row["hidden"] for row in rows.values()) / len(hidden), 4)
            for pairs, rows in relations.items()
        },
        "by_relation": relations["plausible"],
    }


def main() -> None:
    parser = machine.options(__doc__ or "")
    parser.add_argument("--run", help="a trained run whose test split is what is hidden, in place of --graphs")
    parser.add_argument("--graphs", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    arguments = parser.parse_args()
    logging.disable()
    result: dict[str, Any] = {"machine": machine.describe(), "hidden": "test split" if arguments.run else "20%, seed 0"}
    result["graphs"] = {}
    if arguments.run:
        run = pairre.load_run(arguments.run)
        hidden = set(run.graph.names(run.graph.test))
        run.graph = run.graph.without_test()
        result["graphs"][run.graph.name] = judge_run(run, hidden)
        print({k: v for k, v in result["graphs"][run.graph.name].items() if k != "by_relation"}, flush=True)
    for name in [] if arguments.run else arguments.graphs:
        found = result["graphs"][name] = judge(name, arguments.quick)
        print(name, {key: value for key, value in found.items() if key != "by_relation"}, flush=True)
    machine.write("answers-discover-quality", result, arguments)


if __name__ == "__main__":
    main()
