"""How good are vectors of new entities that `extend` finds in seconds, beside training all over again?

Of each graph, 5% of the entities are held out for the report and 5% for choosing settings, with every fact of theirs.
A run is trained on the rest. Some facts of each held-out entity then become known (1, 2 to 4, 5 to 9, or 10 and more,
drawn evenly among what the entity has) and the others are ranked, both sides, among all entities, with known facts left
out. The run is extended by the known facts in several ways, and trained anew with them from the beginning. Settings
were chosen on the entities for choosing (`--choose`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import machine
from pairre import Graph, Recipe, Run, default_recipe, evaluate, extend, load_graph, load_run, train
from pairre.evaluation import rank_both_sides
from pairre.graph import SPLITS, KnownTriples, Layout, Vocabulary
from pairre.graph.extend import extend_graph, read_new_triples

SHARE = 0.05
CLASSES = {"1": (1, 1), "2-4": (2, 4), "5-9": (5, 9), "10+": (10, 1 << 30)}
GROUPS = ("reported", "choosing")


@dataclass(frozen=True)
class HeldOut:
    """The facts of held-out entities, as ids of the whole graph."""

    known: np.ndarray
    ranked: np.ndarray
    num_known: np.ndarray  # of each ranked fact: known facts of its held-out entity, the fewer if both are


def hold_out(graph: Graph, seed: int) -> tuple[Graph, dict[str, HeldOut]]:
    """Return the graph without held-out entities, and the facts of both groups of held-out entities."""
    random = np.random.default_rng(seed)
    order, size = random.permutation(graph.num_entities), round(SHARE * graph.num_entities)
    group_of = np.zeros(graph.num_entities, np.int8)  # 0: stays
    for number in range(len(GROUPS)):
        group_of[order[number * size : (number + 1) * size]] = number + 1
    splits = {split: graph.split(split).numpy() for split in SPLITS}
    facts = np.unique(np.concatenate(list(splits.values())), axis=0)
    ends = group_of[facts[:, [0, 2]]]
    parts = {}
    for number, name in enumerate(GROUPS, start=1):
        own = (ends == number).any(1) & ((ends == number) | (ends == 0)).all(1)
        parts[name] = _divide(facts[own], group_of == number, random)
    kept = {split: triples[(group_of[triples[:, [0, 2]]] == 0).all(1)] for split, triples in splits.items()}
    present = np.unique(kept["train"][:, [0, 2]])
    new_id = np.full(graph.num_entities, -1, np.int32)
    new_id[present] = np.arange(len(present), dtype=np.int32)
    rest = []
    for triples in kept.values():
        moved = np.stack([new_id[triples[:, 0]], triples[:, 1], new_id[triples[:, 2]]], 1)
        rest.append(torch.from_numpy(moved[(moved >= 0).all(1)]))
    entities = Vocabulary(graph.entities.name_list(present.tolist()), "entity")
    return Graph(f"{graph.name}-without", entities, graph.relations, *rest), parts


def _divide(facts: np.ndarray, held_out: np.ndarray, random: np.random.Generator) -> HeldOut:
    """Return which facts of held-out entities are known and which are ranked."""
    by_entity: dict[int, list[int]] = {}
    for position, (head, _, tail) in enumerate(facts.tolist()):
        for entity in {head, tail}:
            if held_out[entity]:
                by_entity.setdefault(entity, []).append(position)
    known = np.zeros(len(facts), np.bool_)
    assigned = np.zeros(len(facts), np.bool_)
    for entity in random.permutation(sorted(by_entity)).tolist():
        mine = random.permutation(by_entity[entity])
        low, high = random.choice([c for c in CLASSES.values() if c[0] < len(mine)] or [(1, 1)])
        wanted = int(random.integers(low, min(high, max(1, len(mine) - 1)) + 1))
        free = mine[~assigned[mine]]
        known[free[: max(0, wanted - int(known[mine].sum()))]] = True
        assigned[mine] = True
    count = np.bincount(facts[known][:, [0, 2]].flatten(), minlength=len(held_out))
    least = np.where(held_out[facts[:, [0, 2]]], count[facts[:, [0, 2]]], 1 << 30).min(1)
    ranked = ~known & (least > 0)
    return HeldOut(facts[known], facts[ranked], least[ranked])


def retraining_graph(base: Graph, whole: Graph, known: np.ndarray) -> Graph:
    """Return the graph of a run that is extended by known facts: what training all over again gets."""
    columns, source = read_new_triples(whole.names(torch.from_numpy(known)), Layout())
    return extend_graph(base, columns, source).graph


def recipe_of(graph: Graph, seed: int, quick: bool) -> Recipe:
    """Return the recipe of a graph: the default settings, the same for every training of that graph."""
    recipe = default_recipe(graph)
    steps = 200 if quick else 4_000 if len(graph.train) < 100_000 else 10_000
    return replace(recipe, train=replace(recipe.train, steps=steps, seed=seed, validate_triples=2000))


def trained(graph: Graph, recipe: Recipe, folder: Path) -> tuple[Run, float]:
    """Return the run of a folder, trained if it is not there, and its seconds of training."""
    if not (folder / "metrics.json").exists():
        train(graph, recipe, out=folder, resume=folder.exists())
    run = load_run(folder)
    return run, float(run.history[-1]["seconds"])


def measure(run: Run, whole: Graph, part: HeldOut) -> dict[str, Any]:
    """Return the MRR of the ranked facts: both sides, by the number of known facts, and each side by whose it is."""
    ids = run.graph.entities.name_list(range(run.graph.num_entities))
    position = {name: i for i, name in enumerate(ids)}
    place = np.array([position.get(name, -1) for name in whole.entities.name_list(range(whole.num_entities))])
    triples = np.stack([place[part.ranked[:, 0]], part.ranked[:, 1], place[part.ranked[:, 2]]], 1)
    usable = (triples >= 0).all(1)  # an old entity may have lost all of its facts
    ranked, num_known = torch.from_numpy(triples[usable]), torch.from_numpy(part.num_known[usable])
    every = torch.cat([*(run.graph.split(split) for split in SPLITS), ranked.int()])
    ranks = rank_both_sides(run.model, ranked, KnownTriples(every, run.graph.num_entities, run.graph.num_relations))
    head, tail = (1 / ranks[side].realistic for side in ("head", "tail"))
    both, is_tail = (head + tail) / 2, ranked[:, 2] >= run.graph.num_entities - run.origin.get("new_entities", 0)
    groups = {name: (num_known >= low) & (num_known <= high) for name, (low, high) in CLASSES.items()}
    return {
        "mrr": float(both.mean()),
        "mrr_of_old_entity_for_new": float(torch.where(is_tail, head, tail).mean()),
        "mrr_of_new_entity": float(torch.where(is_tail, tail, head).mean()),
        "by_known_facts": {
            name: {"num_facts": int(group.sum()), "mrr": float(both[group].mean())}
            for name, group in groups.items()
            if group.any()
        },
    }


def one_graph(name: str, seed: int, folder: Path, quick: bool) -> dict[str, Any]:
    """Return what was measured on a graph with one choice of held-out entities, which is also the seed of training."""
    whole = load_graph(name)
    base_graph, parts = hold_out(whole, seed)
    recipe = recipe_of(base_graph, seed, quick)
    base, base_seconds = trained(base_graph, recipe, folder / f"{name}-{seed}")
    part = parts["reported"]
    new = list(whole.names(torch.from_numpy(part.known)))
    result: dict[str, Any] = {
        "seed": seed,
        "num_entities": {"old": base_graph.num_entities, "held_out": round(SHARE * whole.num_entities)},
        "num_facts": {"train": len(base_graph.train), "known": len(part.known), "ranked": len(part.ranked)},
        "training_seconds_before": base_seconds,
        "mrr_before_on_test_of_old": evaluate(base)["both"]["mrr"],
    }
    ways = {
        "mean of neighbours": {"start": "neighbours", "epochs": 0},
        "mean of neighbours, then steps": {"start": "neighbours"},
        "closed form": {"epochs": 0},
        "closed form, then steps (the default)": {},
    }
    for way, arguments in ways.items():
        begun = time.perf_counter()
        extended = extend(base, new, **arguments)
        seconds = time.perf_counter() - begun
        result[way] = {"seconds": round(seconds, 2), **measure(extended, whole, part)}
        result["num_entities"]["new"] = extended.origin["new_entities"]
    again_graph = retraining_graph(base_graph, whole, part.known)
    again, seconds = trained(again_graph, recipe, folder / f"{name}-{seed}-again")
    again.origin = {"new_entities": again_graph.num_entities - base_graph.num_entities}
    result["training again"] = {"seconds": round(seconds, 1), **measure(again, whole, part)}
    return result


def choose(name: str, seed: int, folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Return the MRR of several settings on the held-out entities for choosing."""
    whole = load_graph(name)
    base_graph, parts = hold_out(whole, seed)
    base, _ = trained(base_graph, recipe_of(base_graph, seed, quick), folder / f"{name}-{seed}")
    part = parts["choosing"]
    new = list(whole.names(torch.from_numpy(part.known)))
    found = []
    for epochs, rate in ((0, 0.0), (5, 0.01), (10, 0.005), (10, 0.01), (10, 0.02), (20, 0.01), (20, 0.03)):
        extended = extend(base, new, epochs=epochs, rate=rate)
        found.append({"seed": seed, "epochs": epochs, "rate": rate, **measure(extended, whole, part)})
    return found


def main() -> None:
    """Measure, print and write."""
    parser = machine.options(str(__doc__))
    parser.add_argument("--graph", default="codex-s", help="which graph")
    parser.add_argument("--seeds", type=int, default=3, help="how many choices of held-out entities")
    parser.add_argument("--runs", type=Path, default=Path("runs/extend"), help="where runs are, or are made")
    parser.add_argument("--choose", action="store_true", help="only compare settings, on the entities for choosing")
    arguments = parser.parse_args()
    described, seeds = machine.describe(), range(1 if arguments.quick else arguments.seeds)
    measured = choose if arguments.choose else one_graph
    found = [measured(arguments.graph, seed, arguments.runs, arguments.quick) for seed in seeds]
    for one in found:
        print(one)
    name = f"answers-extend-{'settings-' if arguments.choose else ''}{arguments.graph}"
    question = "How good are vectors of new entities that `extend` finds, beside training all over again?"
    settings = recipe_of(load_graph(arguments.graph), 0, arguments.quick).to_toml()
    result = {"question": question, "machine": described, "graph": arguments.graph, "quick": arguments.quick}
    machine.write(name, {**result, "recipe": settings, "results": found}, arguments)


if __name__ == "__main__":
    main()
