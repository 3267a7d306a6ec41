"""How good probabilities are where false triples are real: CoDEx-S has some that people have verified.

    python benchmarks/calibration.py --keep
    python benchmarks/calibration.py --keep --set model.dim=200 --set train.steps=3000   # as on two cores

Three runs (seeds 0 to 2), each fitted without the test split and judged on it in two ways:

- `verified`: the triples of the test split against `test-negatives`, half and half (base rate 0.5). The threshold of
  the classification is chosen on the validation split and `valid-negatives`.
- `answers`: the ten best new answers to every query of the test split, as people see them; those in it are true.

The graph is that of the folder `$PAIRRE_DATA`.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import machine
import pairre
from pairre.evaluation import calibrate
from pairre.evaluation.answers import best_answers
from pairre.evaluation.logistic import fit_curve
from pairre.graph import Graph, KnownTriples
from pairre.graph.formats import read_triples
from pairre.runs import Run

Probability = Callable[[Tensor, Tensor], Tensor]  # of scores and relations
Judged = tuple[Tensor, Tensor, Tensor]  # scores, relations, true
NUM_BINS, NUM_CORRUPTIONS = 10, 5


def main() -> None:
    """Train, fit and judge, and write the result."""
    parser = machine.options(__doc__)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of the runs")
    arguments = parser.parse_args()
    data = os.environ.get("PAIRRE_DATA")
    if not data:
        sys.exit("PAIRRE_DATA: name the folder of public graphs")
    described, folder = machine.describe(), Path(data) / "codex-s"
    graph = pairre.load_graph("codex-s")
    overrides = [*arguments.set, *(["train.steps=100", "model.dim=50"] if arguments.quick else [])]
    runs = []
    for seed in (0, 1) if arguments.quick else (0, 1, 2):
        run = pairre.train(graph, overrides=[*overrides, f"train.seed={seed}"], progress=False)
        runs.append(judge(replace(run, graph=graph.without_test()), graph, folder))
        print(seed, {name: values["verified"]["brier"] for name, values in runs[-1].items()})
    result = {
        "machine": described,
        "graph": "codex-s",
        "settings": overrides,
        "seeds": len(runs),
        "methods": mean(runs),
    }
    machine.write("answers-calibration", result, arguments)


def judge(run: Run, graph: Graph, folder: Path) -> dict[str, Any]:
    """Return for every method the figures of one run, whose graph has no test split."""
    false = {split: negatives(graph, folder / f"{split}-negatives.tsv.gz") for split in ("valid", "test")}
    valid = scored(run, graph.valid.long(), false["valid"])
    test = scored(run, graph.test.long(), false["test"])
    shown = best_answers(replace(run, graph=graph), "test")
    drawn = scored(run, graph.valid.long(), corruptions(graph))
    methods: dict[str, Probability] = {
        "base rate": lambda scores, _: torch.full_like(scores, 0.5, dtype=torch.float64),
        "sigmoid of the score": lambda scores, _: scores.double().sigmoid(),
        "Platt, uniform corruptions": platt(drawn, 0.5),
        "Platt, 100 best answers": platt(best_answers(run, "valid", 100), 0.5),
        "pairre, --base-rate 0.5": calibrate(run, base_rate=0.5).probability,
        "pairre, --negatives": calibrate(run, negatives=false["valid"]).probability,
        "pairre, default": calibrate(run).probability,
    }
    result = {}
    for name, probability in methods.items():
        threshold = best_threshold(probability(*valid[:2]), valid[2])
        result[name] = {
            "verified": {
                **figures(probability(*test[:2]), test[2]),
                "accuracy": float(((probability(*test[:2]) >= threshold) == test[2]).double().mean()),
            },
            "answers": {**figures(probability(*shown[:2]), shown[2]), "base_rate": float(shown[2].double().mean())},
        }
    return result


def negatives(graph: Graph, path: Path) -> Tensor:
    """Return the triples of a file as ids [N, 3]."""
    columns = read_triples(path)
    members = ((columns.head, graph.entities), (columns.relation, graph.relations), (columns.tail, graph.entities))
    return torch.tensor([[names.id(name) for name in column.to_pylist()] for column, names in members]).T.contiguous()


def corruptions(graph: Graph) -> Tensor:
    """Return validation triples with a uniformly drawn head or tail, those known from train or valid left out."""
    generator = torch.Generator().manual_seed(0)
    triples = graph.valid.long().repeat(2 * NUM_CORRUPTIONS, 1)
    column = torch.arange(2).repeat_interleave(len(triples) // 2) * 2
    triples[torch.arange(len(triples)), column] = torch.randint(
        graph.num_entities, (len(triples),), generator=generator
    )
    known = KnownTriples(torch.cat([graph.train, graph.valid]), graph.num_entities, graph.num_relations)
    return triples[~known.side("tail").contains(triples, triples[:, 2:])[:, 0]]


@torch.no_grad()
def scored(run: Run, true: Tensor, false: Tensor) -> Judged:
    """Return scores, relations and truth of two lists of triples."""
    triples = torch.cat([true, false])
    device = run.model.entity.device
    scores = torch.cat([run.model.score(part.to(device)).cpu() for part in torch.split(triples, 4096)])
    return scores, triples[:, 1], torch.arange(len(triples)) < len(true)


def platt(data: Judged, base_rate: float) -> Probability:
    """Return one logistic curve for all relations."""
    scores, _, true = (column.numpy() for column in data)
    curve = fit_curve(scores.astype(np.float64), true, np.zeros(len(scores), np.int64), 1, base_rate)
    shift = curve.intercept + float(curve.offsets[0])
    return lambda scores, _: (curve.slope * scores.double() + shift).sigmoid()


def figures(p: Tensor, true: Tensor) -> dict[str, Any]:
    """Return Brier score, expected calibration error, log loss, and the bins of a reliability diagram."""
    p, y = p.double(), true.double()
    bins = (p * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    diagram = [[p[bins == i].mean().item(), y[bins == i].mean().item(), int((bins == i).sum())] for i in bins.unique()]
    return {
        "brier": float(((p - y) ** 2).mean()),
        "ece": sum(abs(expected - found) * number for expected, found, number in diagram) / len(p),
        "log_loss": float(-torch.where(true, p, 1 - p).clamp(min=1e-12).log().mean()),
        "reliability": diagram,
    }


def best_threshold(p: Tensor, true: Tensor) -> float:
    """Return the probability from which on a triple is taken for true so that most are classified rightly."""
    order = p.argsort(descending=True)
    gain = torch.where(true[order], 1, -1).cumsum(0)
    return float(p[order[gain.argmax()]])


def mean(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return [mean, standard deviation] of each figure over runs; diagrams stay apart."""
    result: dict[str, Any] = {}
    for name in runs[0]:
        result[name] = {}
        for part in runs[0][name]:
            values = {key: [run[name][part][key] for run in runs] for key in runs[0][name][part]}
            result[name][part] = {
                key: column if key == "reliability" else [statistics.mean(column), statistics.stdev(column)]
                for key, column in values.items()
            }
    return result


if __name__ == "__main__":
    main()
