"""How many best new answers make no sense, with and without `--any`, and how many true answers the default loses.

A question is a distinct (head, relation) or (relation, tail) of train. Its best new answer makes no sense if it is the
question's own entity though the relation has no loops, or of a wrong type: one that no entity has which train shows on
that side. Types are known for CoDEx-S only, and not used for the answers. Elsewhere there is only the share of answers
out of the observed range, which says little: ranges are open, and half of the true ones are out of range on atlas.
`--search` measures what the choice of MAX_LOSS in
graph/domains.py costs and brings, on validation triples only.

    python benchmarks/answers_plausible.py --keep            # trains atlas and codex-s, five minutes on two cores
    python benchmarks/answers_plausible.py --search --keep
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import Any

import torch

import machine
import pairre
from pairre.graph import SPLITS
from pairre.graph.annotations import EntityTypes
from pairre.graph.domains import MAX_LOSS, Domains
from pairre.graph.index import COLUMN
from pairre.inference.answers import Answers, Choice, answer

MAX_QUESTIONS = 4000  # on each side
# The demo trains with no settings. CoDEx-S is trained with fewer features than its recipe has, for two cores.
RUNS: dict[str, list[str]] = {"atlas": [], "codex-s": ["model.dim=200", "train.steps=3000"]}
SEARCHED = ("atlas", "codex-s", "umls", "nations", "fb15k-237", "wn18rr")
LOSSES = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05)


def main() -> None:
    """Measure, show and keep."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("--runs", type=Path, help="a folder with runs of that name, in place of training them")
    parser.add_argument("--search", action="store_true", help="choose MAX_LOSS on validation triples")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": machine.describe(), "max_loss": MAX_LOSS}
    if arguments.search:
        result["validation"] = {name: search(name) for name in SEARCHED[:4] if not arguments.quick or name == "umls"}
        if not arguments.quick:
            result["validation"] |= {name: search(name) for name in SEARCHED[4:]}
    else:
        result["graphs"] = {name: measure(name, arguments) for name in RUNS}
    machine.write("answers-plausible-search" if arguments.search else "answers-plausible", result, arguments)


def search(name: str) -> list[dict[str, float]]:
    """Return, for each MAX_LOSS, the share of true validation answers that is lost and of entities that is kept."""
    graph = pairre.load_graph(name)
    rows = [{"max_loss": loss, **_lost_and_kept(graph, Domains(graph, loss), "valid")} for loss in LOSSES]
    strict = _lost_and_kept(graph, Domains(graph, 1.0), "valid")
    for row in [*rows, {"max_loss": "observed only", **strict}]:
        print(name, row)
    return [*rows, {"max_loss": 1.0, **strict}]


def _lost_and_kept(graph: pairre.Graph, domains: Domains, split: Any) -> dict[str, float]:
    """Return the share of true answers of a split that are not plausible, and the mean share of plausible entities."""
    triples = graph.split(split).long()
    lost = kept = 0.0
    for side in ("head", "tail"):
        for relation in torch.unique(triples[:, 1]).tolist():
            true = triples[triples[:, 1] == relation][:, COLUMN[side]]
            plausible = domains.plausible(relation, side)
            lost += int((~torch.isin(true, plausible)).sum())
            kept += len(true) * len(plausible) / graph.num_entities
    return {"lost": round(lost / (2 * len(triples)), 5), "kept": round(kept / (2 * len(triples)), 4)}


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the shares of best new answers that make no sense, before and after, and of true answers lost."""
    settings = [*RUNS[name], *(["train.steps=100"] if arguments.quick else [])]
    if arguments.runs is None:
        run = pairre.train(name, overrides=settings, progress=False)
    else:
        run = pairre.load_run(arguments.runs / name)
    graph = run.graph
    metrics = pairre.evaluate(run, plausible=True)
    result: dict[str, Any] = {
        "dim": run.recipe.model.dim,
        "steps": run.recipe.train.steps,
        "test_mrr": metrics["both"]["mrr"],
        "test_mrr_among_plausible": metrics["plausible"]["both"]["mrr"],
        "lost": {split: _lost_and_kept(graph, graph.domains, split)["lost"] for split in SPLITS if split != "train"},
    }
    questions = _questions(graph)
    result["num_questions"] = len(questions)
    types = pairre.load_graph(name).entity_types
    for key, choice in (("any", Choice(k=1, any=True)), ("plausible", Choice(k=1))):
        result[key] = _nonsense(graph, types, questions, answer(run, questions, choice))
        print(name, key, result[key])
    print(name, {key: value for key, value in result.items() if key not in ("any", "plausible")})
    return result


def _questions(graph: pairre.Graph) -> torch.Tensor:
    """Return distinct questions of train, −1 for what is asked, a sample of fixed size on each side."""
    parts = []
    for column in (2, 0):
        asked = graph.train.long().clone()
        asked[:, column] = -1
        asked = torch.unique(asked, dim=0)
        chosen = torch.randperm(len(asked), generator=torch.Generator().manual_seed(0))[:MAX_QUESTIONS]
        parts.append(asked[chosen])
    return torch.cat(parts)


def _nonsense(
    graph: pairre.Graph, types: EntityTypes | None, questions: torch.Tensor, answers: Answers
) -> dict[str, float]:
    """Return the shares of questions whose best answer is their own entity, out of range, or of a wrong type."""
    counts = dict.fromkeys(("own_entity", "out_of_range", *(("wrong_type",) if types else ())), 0)
    for question, (head, relation, tail) in zip(
        questions[answers.query].tolist(), answers.triples.tolist(), strict=True
    ):
        side, found = ("tail", tail) if question[2] < 0 else ("head", head)
        observed = _observed(graph, relation, side)
        if head == tail and not graph.domains.has_loops(relation):
            counts["own_entity"] += 1
        elif found not in observed:
            counts["out_of_range"] += 1
            if types and set(types.of(found)).isdisjoint(_types_of(types, observed)):
                counts["wrong_type"] += 1
    shares = {key: round(count / len(questions), 5) for key, count in counts.items()}
    return {**shares, "no_answer": round(1 - len(answers.query) / len(questions), 5)}


@cache
def _observed(graph: pairre.Graph, relation: int, side: Any) -> frozenset[int]:
    return frozenset(graph.domains.observed(relation, side).tolist())


@cache
def _types_of(types: EntityTypes, entities: frozenset[int]) -> set[int]:
    return {type for entity in entities for type in types.of(entity)}


if __name__ == "__main__":
    main()
