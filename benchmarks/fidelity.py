"""Does an answer fall when the facts that `pairre why` names for it are gone, and more than without as many others?

A run is trained, and validation triples whose tail it ranks first are explained. The named facts of many unrelated
answers are removed from train at once, and the graph is trained again with other seeds; so it is with nothing removed,
and with as many random facts of the same heads and tails. No test triple is read.

    PAIRRE_DATA=… python benchmarks/fidelity.py [--quick] [--rounds SEEDS] [--keep | --json FILE]
"""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import machine
import pairre
from pairre.evaluation.ranking import rank
from pairre.graph import Graph, Side
from pairre.graph.index import COLUMN
from pairre.inference.necessary import Answer, dependence, facts_of
from pairre.support.randomness import generator

SIDES: tuple[Side, Side] = ("head", "tail")


@dataclass(frozen=True)
class Setting:
    """A graph, how it is trained, which answers are explained, and how many facts are removed for each."""

    graph: str
    overrides: tuple[str, ...]
    answers: int
    removed: int
    degree: tuple[int, int]  # least and most facts of the head of an answer


SETTINGS = (
    Setting("umls", ("model.dim=64", "train.steps=500", "train.lr=1e-2"), 25, 5, (8, 1000)),
    Setting("codex-s", ("model.dim=64", "train.steps=500", "train.lr=1e-2"), 120, 3, (8, 60)),
)


def train(graph: Graph, setting: Setting, seed: int) -> pairre.Run:
    steps = next(value for value in setting.overrides if value.startswith("train.steps=")).partition("=")[2]
    settings = [*setting.overrides, f"train.validate_every={steps}", f"train.seed={seed}"]
    return pairre.train(graph, overrides=settings, progress=False, device="cpu")


def chosen(run: pairre.Run, setting: Setting) -> Tensor:
    """Return validation triples [N, 3] whose tail is ranked first; heads differ, and none is a tail among them."""
    graph, (least, most) = run.graph, setting.degree
    degree = torch.bincount(graph.train[:, [0, 2]].flatten(), minlength=graph.num_entities)
    first = rank(run.model, graph.valid, graph.known, "tail").realistic == 1
    of_head = degree[graph.valid[:, 0].long()]
    good = graph.valid[first & (of_head >= least) & (of_head <= most)].long()
    good = good[torch.randperm(len(good), generator=generator(0, "fidelity"))]
    heads: set[int] = set()
    tails: set[int] = set()
    found = []
    for triple in good:
        head, _, tail = triple.tolist()
        if head not in heads | tails and tail not in heads and len(found) < setting.answers:
            heads.add(head)
            tails.add(tail)
            found.append(triple)
    return torch.stack(found)


def removals(run: pairre.Run, answers: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """Return the named and the random facts of all answers, [M, 3] each; none touches the head of another answer."""
    named, random = [], []
    heads, draw = answers[:, 0], generator(0, "random facts")
    for triple in answers:
        others = heads[heads != triple[0]]

        def eligible(facts: Tensor, others: Tensor = others) -> Tensor:
            return ~(torch.isin(facts[:, 0], others) | torch.isin(facts[:, 2], others))

        answer = Answer(run, triple, "tail")
        pool: list[tuple[float, Side, Tensor]] = []
        for side in SIDES:
            found = dependence(answer, side)
            pool += [
                (float(f), side, fact) for f, fact in zip(found.fall, found.facts, strict=True) if eligible(fact[None])
            ]
        best = sorted(pool, key=lambda entry: -entry[0])[: setting.removed]
        named += [fact for _, _, fact in best]
        for side in SIDES:
            facts = facts_of(run.graph, int(triple[COLUMN[side]]), triple)
            facts = facts[eligible(facts)]
            number = sum(of == side for _, of, _ in best)
            random += list(facts[torch.randperm(len(facts), generator=draw)[:number]])
    return torch.stack(named), torch.stack(random)


def without(graph: Graph, removed: Tensor) -> Graph:
    keys = (graph.train.long() * torch.tensor([1, 1 << 20, 1 << 40])).sum(1)
    gone = (removed * torch.tensor([1, 1 << 20, 1 << 40])).sum(1)
    return replace(graph, train=graph.train[~torch.isin(keys, gone)].contiguous())


def measure(setting: Setting, seeds: int) -> dict[str, Any]:
    graph = pairre.load_graph(setting.graph).without_test()
    run = train(graph, setting, 0)
    answers = chosen(run, setting)
    started = time.perf_counter()
    named, random = removals(run, answers, setting)
    seconds = (time.perf_counter() - started) / len(answers)
    arms = {"nothing": graph, "random": without(graph, random), "named": without(graph, named)}
    reciprocal: dict[str, list[Tensor]] = {name: [] for name in arms}  # of both sides' queries, [2, N] each seed
    for seed in range(1, seeds + 1):
        for name, part in arms.items():
            model = train(part, setting, seed).model
            ranks = torch.stack([rank(model, answers, graph.known, side).realistic for side in SIDES])
            reciprocal[name].append(1 / ranks)
            print(
                f"{setting.graph:8} seed {seed} {name:8} tail MRR {float(reciprocal[name][-1][1].mean()):.3f}",
                flush=True,
            )
    result: dict[str, Any] = {
        "setting": {"graph": setting.graph, "overrides": setting.overrides, "removed_per_answer": setting.removed},
        "num_answers": len(answers),
        "num_removed": {"random": len(random.unique(dim=0)), "named": len(named.unique(dim=0))},
        "seconds_per_explanation": round(seconds, 3),
        "seeds": seeds,
    }
    means = {name: torch.stack(values).mean(0) for name, values in reciprocal.items()}
    for column, side in enumerate(SIDES):
        result[side] = {
            name: {
                "mrr": float(mean[column].mean()),
                "hits_at_1": statistics.mean(float((v[column] == 1).double().mean()) for v in reciprocal[name]),
            }
            for name, mean in means.items()
        }
        result[side]["random_minus_named"] = interval((means["random"] - means["named"])[column])
        result[side]["nothing_minus_random"] = interval((means["nothing"] - means["random"])[column])
    return result


def interval(differences: Tensor) -> dict[str, float]:
    """Return the mean over answers, with a 95% bootstrap interval."""
    drawn = torch.randint(len(differences), (2000, len(differences)), generator=generator(0, "bootstrap"))
    low, high = differences[drawn].mean(1).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return {"mean": float(differences.mean()), "low": low, "high": high}


def main() -> None:
    arguments = machine.options(__doc__ or "").parse_args()
    logging.disable()
    seeds = arguments.rounds or (1 if arguments.quick else 3)
    where = machine.describe()
    results = []
    for setting in SETTINGS:
        results.append(measure(replace(setting, answers=10) if arguments.quick else setting, seeds))
        for side in SIDES:
            print(setting.graph, side, results[-1][side])
    machine.write("answers-why", {"machine": where, "graphs": results}, arguments)


if __name__ == "__main__":
    main()
