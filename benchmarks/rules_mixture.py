"""How much do rules beside the model's ranking help: test metrics of trained runs, alone and with mined rules?

Rules are mined in train, and how much they count is chosen on the validation split for each relation
(`pairre.evaluation.rule_evidence`). Which rules are mined is the same for all graphs: support 5, confidence 0.1.
Whether several rules for a fact count by the largest confidence or by noisy-or is chosen on the validation split, too.

    PAIRRE_DATA=… python benchmarks/rules_mixture.py RUN … [--keep | --json FILE]
"""

from __future__ import annotations

import time
from typing import Any

import machine
import pairre
from pairre.evaluation.rule_evidence import evaluate_with_rules
from pairre.rules import mine
from pairre.rules.apply import Combine

MINED = {"min_support": 5, "min_confidence": 0.1, "min_head_coverage": 0.01}
COMBINATIONS: tuple[Combine, ...] = ("max", "noisy-or")


def judge(path: str, device: str) -> dict[str, Any]:
    """Return the metrics of a run on test, with the combination that is better on the validation split."""
    run = pairre.load_run(path, device)
    started = time.perf_counter()
    rules = mine(run.graph, **MINED)
    mined = time.perf_counter()
    valid = {combine: evaluate_with_rules(run, rules, "valid", combine) for combine in COMBINATIONS}
    best = max(COMBINATIONS, key=lambda combine: valid[combine]["with_rules"]["both"]["mrr"])
    result = evaluate_with_rules(run, rules, "test", best)
    return {
        "model": run.model.name,
        "dim": run.model.dim,
        "steps": run.recipe.train.steps,
        "rules": {kind: sum(rule.kind == kind for rule in rules) for kind in sorted({rule.kind for rule in rules})},
        "combine": best,
        "valid_mrr": {
            "model": valid[best]["without_rules"]["both"]["mrr"],
            **{combine: valid[combine]["with_rules"]["both"]["mrr"] for combine in COMBINATIONS},
        },
        "test": {"model": result["without_rules"], "with_rules": result["with_rules"]},
        "weights": result["weights"],
        "seconds": {"mine": round(mined - started, 1), "evaluate": round(time.perf_counter() - mined, 1)},
    }


def main() -> None:
    parser = machine.options(__doc__ or "")
    parser.add_argument("runs", nargs="+", help="folders of trained runs, of graphs with a validation split")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": machine.describe(), "mined": MINED, "graphs": {}}
    for path in arguments.runs:
        name = pairre.load_run(path, "cpu").graph.name
        found = result["graphs"][name] = judge(path, arguments.device)
        shown = {which: {m: round(v, 4) for m, v in found["test"][which]["both"].items()} for which in found["test"]}
        print(name, found["combine"], found["valid_mrr"], shown, found["seconds"], flush=True)
    machine.write("answers-rules-mixture", result, arguments)


if __name__ == "__main__":
    main()
