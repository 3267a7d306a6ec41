"""What do rules add to a run: closed ones that are mined, and those that name entities, alone and together?

For each run the weights of each mixture are fitted on a sample of the validation split, and what they reach is that on
triples left out of the fit (`pairre.evaluation.mixing`); test is not looked at. Seconds of a query are those that its
rules take of one core, with all queries of the sample asked together, each once.

    PAIRRE_DATA=… python benchmarks/entity_rules.py RUN … [--triples 2000] [--keep | --json FILE]
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

import machine
import pairre
from pairre.evaluation.candidates import CandidateScores, candidate_scores
from pairre.evaluation.mixing import fit
from pairre.evaluation.ranking import SIDES, rank_both_sides
from pairre.models import EntityRules, RuleScores
from pairre.models.rule_model import RuleModel
from pairre.rules import mine
from pairre.support.randomness import generator

MINED = {"min_support": 2, "min_confidence": 0.02}  # as in accuracy.py
MIXTURES = {"closed rules": [0, 1], "entity rules": [0, 2], "both": [0, 1, 2]}


def timed(model: RuleModel, triples: torch.Tensor) -> float:
    """Return the seconds of a core that a query takes."""
    num = sum(len(torch.unique(triples[:, columns], dim=0)) for columns in ([0, 1], [1, 2]))
    model.answer_ahead(triples[:1], "tail")  # compiled, and its scratch is there
    start = time.process_time()
    for side in SIDES:
        model.answer_ahead(triples, side)
    return (time.process_time() - start) / num


def alone(model: RuleModel, triples: torch.Tensor, graph: pairre.Graph) -> dict[str, float]:
    """Return the validation MRR of rules among all entities, on each side and both."""
    ranks = {
        side: float((1 / of.realistic).mean()) for side, of in rank_both_sides(model, triples, graph.known).items()
    }
    return {**ranks, "both": sum(ranks.values()) / 2}


def mixed(found: CandidateScores, chosen: list[int], num_relations: int) -> dict[str, Any]:
    """Return the MRR of a mixture of some members on triples that its weights were not fitted to."""
    part = replace(found, scores=found.scores[:, :, chosen].contiguous())
    fitted = fit(part, num_relations)
    return {"weights": str(fitted.plan), "mrr": fitted.left_out_mrr[str(fitted.plan)], "by_plan": fitted.left_out_mrr}


def judge(path: str, num_triples: int) -> dict[str, Any]:
    """Return what rules have alone and beside a run."""
    run = pairre.load_run(path, "cpu")
    graph = run.graph
    order = torch.randperm(len(graph.valid), generator=generator(0, "entity rules"))
    triples = graph.valid[order[:num_triples]].long()
    start = time.process_time()
    rules = mine(graph, **MINED)
    mined = time.process_time()
    closed = RuleScores(graph, rules)
    built = time.process_time()
    entity = EntityRules(graph)
    seconds = {"mine": mined - start, "index of entity rules": time.process_time() - built}
    seconds |= {"query of closed rules": timed(closed, triples), "query of entity rules": timed(entity, triples)}
    members = [run.model, closed, entity]
    found = candidate_scores(members, graph, triples)
    own = torch.zeros(len(found.triple), len(members))
    own[:, 0] = 1
    result = {
        "model": run.model.name,
        "triples": len(triples),
        "closed rules": len(rules),
        "seconds of a core": {name: round(value, 6) for name, value in seconds.items()},
        "valid_mrr": {
            "model": float(found.reciprocal_ranks(own).mean()),
            "closed rules": alone(closed, triples, graph),
            "entity rules": alone(entity, triples, graph),
        },
        "mixed": {name: mixed(found, chosen, graph.num_relations) for name, chosen in MIXTURES.items()},
    }
    shown = {name: round(of["mrr"], 4) for name, of in result["mixed"].items()}
    print(graph.name, result["valid_mrr"], shown, result["seconds of a core"], flush=True)
    return result


def main() -> None:
    """Judge rules beside every run."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("runs", nargs="+", help="folders of trained runs, of graphs with a validation split")
    parser.add_argument("--triples", type=int, default=2000, help="of the validation split, at most")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": machine.describe(), "mined": MINED, "graphs": {}}
    for path in arguments.runs:
        name = pairre.load_run(path, "cpu").graph.name
        result["graphs"].setdefault(name, []).append(judge(path, arguments.triples))
    machine.write("entity-rules", result, arguments)


if __name__ == "__main__":
    main()
