"""Collect everything that the report of a run shows, as plain values ready for JSON."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from pairre.analysis.patterns import (
    FORMULAS,
    KINDS,
    MIN_AGREEMENT,
    MOST_SEARCHED,
    Kind,
    Pattern,
    Vectors,
    agreement,
    compare,
    paired_vectors,
    patterns_in_triples,
    search_frequent,
)
from pairre.analysis.patterns.detect import MIN_CONFIDENCE, MIN_COVERAGE, MIN_SUPPORT
from pairre.analysis.patterns.search import symmetries
from pairre.analysis.report.answers import answers_and_reliability
from pairre.analysis.report.entities import Method, entity_map
from pairre.evaluation import summarise_groups, triples_by_category, triples_by_relation
from pairre.evaluation.metrics import BREAKDOWN_METRICS, METRICS, bootstrap, summarise
from pairre.evaluation.ranking import Ranks, rank_both_sides
from pairre.graph import Graph, Side, Split
from pairre.graph.leakage import describe_leakage
from pairre.graph.statistics import CATEGORIES, relation_categories, relation_means
from pairre.runs import Run
from pairre.support.version import __version__

MOST_PATTERNS = 2000  # listed of each kind
MOST_NUMBERS = 1 << 22  # of relation vectors that the page carries, about 11 MB
MOST_POINTS = 1000  # of a curve


Notify = Callable[[str, float], None]  # called with the current stage and the fraction of it that is done


def collect(run: Run, split: Split, method: Method, notify: Notify) -> dict[str, Any]:
    """Return the values of a report: ranks of the split, patterns in vectors and triples, the map of entities."""
    graph = run.graph
    result: dict[str, Any] = {
        "title": f"{run.model.name} on {graph.name}",
        "subtitle": f"{run.recipe.model.dim:,} features, seed {run.recipe.train.seed}",
        "unfinished": _unfinished(run),
        "footer": f"Made by pairre {__version__} on {datetime.date.today().isoformat()}. {run.model.formula}",
        "categories": CATEGORIES,
        "curves": _curves(run.history),
        "formulas": FORMULAS,
        "metrics": [{"key": m.key, "label": m.label, "digits": m.digits} for m in METRICS.values()],
        "breakdown_metrics": list(BREAKDOWN_METRICS),
    }
    if len(graph.split(split)):
        advance = _counted(notify, f"ranking the {split} split", 2 * len(graph.split(split)) * graph.num_entities)
        ranks = rank_both_sides(run.model, graph.split(split), graph.known, advance, graph.fixed_candidates(split))
        evaluation, ranked = _evaluated(graph, split, ranks)
        result |= {"evaluation": evaluation, "metrics_note": _metrics_note(evaluation)}
    else:
        result["no_evaluation"] = f"The {split} split is empty, so nothing was ranked."
        ranks, ranked = {}, {}
    notify("answering a sample of queries", 0)
    result |= answers_and_reliability(run, split, ranks)
    triples = patterns_in_triples(graph, progress=_counted(notify, "mining rules from the training triples", 1))
    vectors = paired_vectors(run.model)
    if vectors is not None:
        notify("searching the relation vectors for patterns", 0)
        result |= _from_vectors(vectors, graph, triples)
    else:
        result |= {
            "patterns": _rows({}, triples, None),
            "patterns_note": f"{run.model.name} has no paired relation vectors, so patterns are read off the training "
            f"triples alone. {_mined()}",
        }
    notify("laying out the map of entities", 0)
    result["map"] = entity_map(graph, run.model, method)
    shown, num_entities = len(result["map"]["x"]), result["map"].pop("num_entities")
    which = "all entities" if shown == num_entities else f"the {shown:,} most frequent of {num_entities:,} entities"
    result["map_note"] = f"By {result['map'].pop('method')} of their vectors: {which}."
    result["relations"] = {**_relations(graph, vectors), **ranked}
    return {**result, "facts": _facts(run, result.get("evaluation"))}


def _counted(notify: Notify, what: str, total: float) -> Callable[[float], None]:
    """Return a function that adds an amount of finished work and reports the fraction of `total` that is done."""
    done = 0.0
    notify(what, 0)

    def advance(amount: float) -> None:
        nonlocal done
        done += amount
        notify(what, min(1.0, done / total))

    return advance


def _facts(run: Run, evaluation: dict[str, Any] | None) -> list[list[str]]:
    """Return the cards at the top of the page: a term, its value, and a remark."""
    graph, recipe = run.graph, run.recipe
    steps = max((entry["step"] for entry in run.history), default=0)
    valid = [entry["best_mrr"] for entry in run.history if "best_mrr" in entry]
    facts = [
        ["graph", graph.name, f"{graph.num_entities:,} entities, {graph.num_relations:,} relations"],
        ["train / valid / test", " / ".join(f"{len(graph.split(s)):,}" for s in ("train", "valid", "test")), "triples"],
        ["model", run.model.name, f"{sum(p.numel() for p in run.model.parameters()):,} parameters"],
        ["loss", recipe.loss.name, f"γ {recipe.loss.margin:g}, α {recipe.loss.temperature:g}"],
        ["batch", f"{recipe.train.batch:,}", f"{recipe.sampling.negatives or 'all'} negatives"],
        ["optimiser", recipe.train.optimizer, f"rate {recipe.train.lr:g}, {recipe.train.schedule}"],
        ["steps", f"{steps:,}" if steps else "not logged", f"of {recipe.train.steps:,}{_stopped(run)}"],
    ]
    if valid:
        facts.append(["best valid MRR", f"{max(valid):.4f}", "while training"])
    if evaluation:
        low, high = evaluation["interval_95"]["mrr"]
        facts.append(
            [f"{evaluation['split']} MRR", f"{evaluation['both']['mrr']:.4f}", f"95%: {low:.4f} to {high:.4f}"]
        )
    return facts


def _unfinished(run: Run) -> str:
    """Return a sentence for the top of the page if training was stopped before its end, else nothing."""
    found = run.unfinished
    return (found and f"Trained {found.step:,} of {found.num_steps:,} steps only: what follows is not final.") or ""


def _stopped(run: Run) -> str:
    """Return why training ended before its last step, empty if it did not."""
    if run.unfinished:
        return ", not trained to its end"
    return ", stopped early" if run.history and run.history[-1].get("stopped_early") else ""


def _curves(history: list[dict[str, Any]]) -> dict[str, list[list[float]]]:
    loss = [[entry["step"], entry["loss"]] for entry in history if "loss" in entry]
    valid = [[entry["step"], entry["valid"]["mrr"]] for entry in history if "valid" in entry]
    return {"loss": loss[:: len(loss) // MOST_POINTS + 1], "valid": valid[:: len(valid) // MOST_POINTS + 1]}


def _evaluated(
    graph: Graph, split: Split, ranks: Mapping[Side, Ranks]
) -> tuple[dict[str, Any], dict[str, list[float | None]]]:
    """Return the metrics of a split, also by category, and columns of the table of relations, from one ranking."""
    triples = graph.split(split)
    evaluation = {
        "split": split,
        "num_triples": len(triples),
        **summarise(ranks),
        "interval_95": bootstrap(ranks),
        "leakage": graph.leakage[split] if split != "train" else {},
        "by_category": summarise_groups(ranks, triples_by_category(graph, triples)),
    }
    by_relation = summarise_groups(ranks, triples_by_relation(graph, triples))
    groups = [by_relation.get(name) for name in graph.relations.name_list(range(graph.num_relations))]
    columns: dict[str, list[float | None]] = {"ranked": [group["num_triples"] if group else 0 for group in groups]}
    for key in BREAKDOWN_METRICS:
        columns[key] = [group["both"][key] if group else None for group in groups]
    return evaluation, columns


def _metrics_note(evaluation: dict[str, Any]) -> str:
    leaks = describe_leakage(evaluation["leakage"], evaluation["split"]) or evaluation["leakage"].get("skipped", "")
    return (
        f"The {evaluation['num_triples']:,} triples of the {evaluation['split']} split, each ranked among all heads "
        "and all tails, other known triples left out; ties count as the mean of the best and the worst rank. The 95% "
        "interval is a bootstrap over triples (1,000 resamples)." + (f" {leaks}." if leaks else "")
    )


def _relations(graph: Graph, vectors: Vectors | None) -> dict[str, list[Any]]:
    """Return the columns of the table of relations."""
    columns: dict[str, list[Any]] = {
        "name": [graph.show_relation(i) for i in range(graph.num_relations)],
        "category": relation_categories(graph),
        "train": relation_means(graph)[0].tolist(),
    }
    return columns if vectors is None else {**columns, "symmetry": _rounded(symmetries(vectors))}


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(float(v), 4) for v in values]


def _mined() -> str:
    return (
        f"By the training triples a pattern holds if its rule has a confidence of {MIN_CONFIDENCE:g} or more and "
        f"predicts {MIN_SUPPORT} triples and {MIN_COVERAGE:.0%} of those of the relation it implies."
    )


def _from_vectors(vectors: Vectors, graph: Graph, triples: set[Pattern]) -> dict[str, Any]:
    """Return the patterns in vectors and in triples, their comparison, and the packed vectors."""
    found = search_frequent(vectors, graph)
    compared = compare((p for patterns in found.values() for p in patterns), triples)
    thresholds = ", ".join(f"{kind} {least:g}" for kind, least in MIN_AGREEMENT.items())
    packed = _packed(vectors, graph, [p for patterns in found.values() for p in patterns[:50]])
    too_many = graph.num_relations > MOST_SEARCHED
    left_out = graph.num_relations - len(packed["relations"])
    return {
        "vectors": packed,
        "patterns": _rows(found, triples, vectors),
        "comparison": {kind: c.as_dict() for kind, c in compared.items()},
        "patterns_note": "Agreement is the fraction of the two sides of a pattern's equation that cancels: 1 where it "
        f"holds, about 0.2 by chance (0.36 for a symmetry). From here up (✓) the vectors show it: {thresholds}. "
        f"{_mined()} At most {MOST_PATTERNS:,} of each kind are listed."
        + (f" The vectors of the {MOST_SEARCHED:,} most frequent relations were searched." if too_many else "")
        + (f" Histograms are there for all but {left_out:,} less frequent relations." if left_out else ""),
        "comparison_note": "Precision: of the patterns that the vectors show, the fraction that the triples show too. "
        "Recall: of those that the triples show, the fraction that the vectors do.",
    }


def _rows(found: dict[Kind, list[Pattern]], triples: set[Pattern], vectors: Vectors | None) -> dict[str, Any]:
    """Return, by kind, the patterns found in vectors or in triples, with both scores, best first."""
    table: dict[str, Any] = {}
    for kind in KINDS:
        confidence = {p.relations: round(p.score, 4) for p in triples if p.kind == kind}
        seen = {p.relations for p in found.get(kind, [])}
        best = sorted(confidence, key=lambda ids: -confidence[ids])
        listed = list(dict.fromkeys([*(p.relations for p in found.get(kind, [])), *best]))
        agreed: list[Any] = [None] * len(listed)
        if vectors is not None and listed:
            pieces = np.array_split(np.array(listed), len(listed) // 1000 + 1)
            agreed = _rounded(np.concatenate([agreement(vectors, kind, piece) for piece in pieces]))
            order = sorted(range(len(listed)), key=lambda i: -agreed[i])
            listed, agreed = [listed[i] for i in order], [agreed[i] for i in order]
        table[kind] = [
            {"ids": ids, "agreement": a, "confidence": confidence.get(ids), "vectors": ids in seen}
            for ids, a in zip(listed[:MOST_PATTERNS], agreed, strict=False)
        ]
    return table


def _packed(vectors: Vectors, graph: Graph, first: Iterable[Pattern]) -> dict[str, Any]:
    """Return relation vectors in half precision, scaled to at most 1.

    Where not all fit, relations of the patterns in `first` are kept, then the most frequent ones.
    """
    by_frequency = relation_means(graph)[0].argsort(descending=True, stable=True).tolist()
    dim = vectors.head.shape[1]
    wanted = list(dict.fromkeys([*(i for p in first for i in p.relations), *by_frequency]))
    kept = sorted(wanted[: max(1, MOST_NUMBERS // (2 * dim))])
    scale = float(max(np.abs(vectors.head).max(), np.abs(vectors.tail).max())) or 1.0
    parts = {
        name: base64.b64encode((part[kept] / scale).astype("<f2").tobytes()).decode()
        for name, part in vectors._asdict().items()
    }
    return {"dim": dim, "scale": scale, "relations": kept, **parts}
