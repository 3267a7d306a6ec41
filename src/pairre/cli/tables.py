"""Lay out results as tables for a terminal.

Nothing is computed here beyond a mean and a standard deviation.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pairre.evaluation.metrics import BREAKDOWN_METRICS, METRICS
from pairre.graph.benchmarks import Benchmark
from pairre.graph.statistics import GraphStatistics
from pairre.inference.predict import Prediction
from pairre.models import PATTERNS, Model
from pairre.rules import KINDS, Rule
from pairre.studies.reproduce.experiments import Experiment
from pairre.studies.reproduce.page import HEADER, cells
from pairre.studies.tune import Tuned


def _table(title: str, left: Iterable[str], right: Iterable[str] = ()) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right")
    return table


def _metric_cells(values: Mapping[str, float]) -> list[str]:
    """Return a cell for every declared metric; one that `values` lacks, as results of old runs may, stays empty."""
    return [metric.format(values[key]) if key in values else "" for key, metric in METRICS.items()]


def _metric_labels() -> list[str]:
    return [metric.label for metric in METRICS.values()]


def metrics_table(result: dict[str, Any]) -> Table:
    """Return the metrics of both sides and of each, with intervals and both ways to count ties."""
    protocol = result.get("protocol", "filtered")
    title = f"{result['graph']}, {result['split']}: {result['num_triples']:,} triples, {protocol}"
    table = _table(title, [""], _metric_labels())
    table.add_row("both sides", *_metric_cells(result["both"]), style="bold")
    for i, end in enumerate(("from", "to")):
        bounds = {key: interval[i] for key, interval in result["interval_95"].items()}
        table.add_row(f"  95% {end}", *_metric_cells(bounds), style="dim")
    table.add_row("heads", *_metric_cells(result["head"]))
    table.add_row("tails", *_metric_cells(result["tail"]))
    for ties in ("optimistic", "pessimistic"):
        table.add_row(f"ties {ties}", *_metric_cells(result["ties"][ties]), style="dim")
    return table


def seeds_table(results: dict[str, dict[str, Any]]) -> Table:
    """Return the metrics of several runs on one graph, with their mean and standard deviation."""
    first = next(iter(results.values()))
    protocol = first.get("protocol", "filtered")
    table = _table(f"{first['graph']}, {first['split']}, {protocol}: {len(results)} seeds", [""], _metric_labels())
    for name, result in results.items():
        table.add_row(name, *_metric_cells(result["both"]))
    values = {key: [result["both"][key] for result in results.values()] for key in first["both"]}
    for name, statistic in (("mean", statistics.mean), ("std", statistics.stdev)):
        table.add_row(name, *_metric_cells({key: statistic(v) for key, v in values.items()}), style="bold")
    return table


def evaluation_tables(result: dict[str, Any]) -> list[Table]:
    """Return the table of metrics, followed by a breakdown by relation or category where the result has one."""
    shown = [metrics_table(result)]
    for by in ("relation", "category"):
        if f"by_{by}" in result:
            shown.append(_breakdown_table(by, result[f"by_{by}"]))
    return shown


def _breakdown_table(by: str, groups: Mapping[str, dict[str, Any]]) -> Table:
    metrics = [METRICS[key] for key in BREAKDOWN_METRICS]
    columns = [column for metric in metrics for column in (metric.label, "heads", "tails")]
    table = _table(f"\nby {by}", [by], ["triples", *columns])
    ordered = sorted(groups, key=lambda name: -groups[name]["num_triples"]) if by == "relation" else groups
    for name in ordered:
        group = groups[name]
        cells = [metric.format(group[side][metric.key]) for metric in metrics for side in ("both", "head", "tail")]
        table.add_row(name, f"{group['num_triples']:,}", *cells)
    return table


def predictions_table(answers: Sequence[Prediction]) -> Table:
    """Return the predictions, best first."""
    table = _table("", ["", "head", "relation", "tail"], ["score"])
    table.add_column("known")
    for a in answers:
        table.add_row(str(a.rank), a.head, a.relation, a.tail, f"{a.score:.4f}", a.known or "")
    return table


def statistics_tables(s: GraphStatistics, most: int = 10) -> list[Table]:
    """Return three tables: sizes and irregularities, relation categories, and the `most` frequent relations."""
    title = f"{s.name}: {s.num_entities:,} entities, {s.num_relations:,} relations"
    sizes = _table(title, [""], s.num_triples)
    for name, values in (
        ("triples", s.num_triples),
        ("repeated triples", s.num_duplicates),
        ("entities unseen in train", s.num_unseen_entities),
        ("relations unseen in train", s.num_unseen_relations),
    ):
        sizes.add_row(name, *(f"{values[c]:,}" if c in values else "" for c in s.num_triples))
    for pair, count in s.num_shared.items():
        sizes.add_row(f"triples in both {pair.replace('-', ' and ')}", f"{count:,}")
    categories = _table("\nrelation categories (from 1.5 up a side is N)", ["category"], ["relations", "train triples"])
    for name, counts in s.categories.items():
        categories.add_row(name, f"{counts['relations']:,}", f"{counts['triples']:,}")
    frequent = _table(
        f"\nthe {min(most, len(s.relations))} most frequent relations in train",
        ["relation"],
        ["triples", "tails per head", "heads per tail", "category"],
    )
    for r in s.relations[:most]:
        frequent.add_row(r.name, f"{r.num_triples:,}", f"{r.tails_per_head:.2f}", f"{r.heads_per_tail:.2f}", r.category)
    return [sizes, categories, frequent]


def rules_tables(rules: Sequence[Rule], top: int) -> list[Table]:
    """Return how many rules there are of each kind, and the first `top` of them."""
    counts = _table(f"{len(rules):,} rules", ["kind"], ["rules"])
    for kind in KINDS:
        counts.add_row(kind, f"{sum(rule.kind == kind for rule in rules):,}")
    shown = rules[:top]
    strongest = _table(f"\nthe {len(shown)} strongest", ["rule"], ["confidence", "PCA", "support", "head coverage"])
    for r in shown:
        values = (f"{r.confidence:.3f}", f"{r.pca_confidence:.3f}", f"{r.support:,}", f"{r.head_coverage:.3f}")
        strongest.add_row(escape(str(r)), *values)
    return [counts, strongest] if shown else [counts]


def tuning_table(found: Tuned) -> Table:
    """Return the settings of the best trial, and how much each mattered."""
    table = _table(f"best of {found.num_trials} trials", ["key"], ["value", "importance"])
    table.add_row("valid MRR", f"{found.mrr:.4f}", style="bold")
    for name, value in found.settings.items():
        importance = f"{found.importances[name]:.0%}" if name in found.importances else ""
        table.add_row(name, setting(value), importance)
    return table


def setting(value: Any) -> str:
    """Return a recipe value as short text."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def benchmarks_table(benchmarks: Iterable[Benchmark]) -> Table:
    """Return the public graphs that can be loaded by name, with their sizes and licences."""
    table = _table("graphs by name", ["name"], ["entities", "relations", "train", "valid", "test"])
    table.add_column("licence", overflow="fold")
    table.add_row("atlas", "bundled: see pairre stats atlas", "", "", "", "", "CC BY 4.0")
    for b in benchmarks:
        sizes = (b.num_entities, b.num_relations, b.num_train, b.num_valid, b.num_test)
        table.add_row(b.name, *(f"{n:,}" for n in sizes), b.licence)
    return table


def models_table(models: Iterable[type[Model]], sizes: tuple[int, int, int]) -> Table:
    """Return every model with the patterns that it can express.

    `sizes` are the entities, relations and features for which parameters are counted.
    """
    num_entities, num_relations, dim = sizes
    title = f"models; parameters for {num_entities:,} entities, {num_relations:,} relations, dim {dim:,}"
    table = _table(title, ["name", "score, and paper"], ["parameters"])
    for short in PATTERNS.values():
        table.add_column(short, justify="center")
    for column in (*table.columns[:1], *table.columns[2:]):
        column.no_wrap = True
    for model in models:
        marks = ["✓" if pattern in model.patterns else "✗" for pattern in PATTERNS]
        formula = Text.assemble(model.formula, "\n", (model.paper, "dim"))
        table.add_row(model.name, formula, f"{model.num_parameters(*sizes):,}", *marks)
    return table


def recipes_table(title: str, purposes: Mapping[str, str]) -> Table:
    """Return the recipes by name, with their purpose."""
    table = _table(f"{title}, for --recipe", ["name", "what it is for"])
    table.columns[0].no_wrap = True
    for name, purpose in purposes.items():
        table.add_row(name, purpose)
    return table


def keys_table(keys: Iterable[tuple[str, Field[Any]]]) -> Table:
    """Return every recipe key with its default and help."""
    table = _table("\nkeys, for a recipe file or --set", ["key", "default", "what it is"])
    for path, declaration in keys:
        table.add_row(path, str(declaration.default), declaration.metadata["help"])
    return table


def experiments_table(experiments: Iterable[Experiment]) -> Table:
    """Return the experiments that can be reproduced, and what each needs."""
    table = _table("Tables and figures of the paper", ["name", "what", "graphs", "seeds", "needs"])
    table.columns[0].no_wrap = True
    for experiment in experiments:
        graphs = ", ".join(dict.fromkeys(trial.graph for trial in experiment.trials))
        table.add_row(experiment.name, experiment.title, graphs, str(experiment.seeds), experiment.needs)
    return table


def reproduction_table(result: dict[str, Any]) -> Table:
    """Return the reproduced figures beside the published ones; `result` is `Reproduced.as_dict()`."""
    table = _table(escape(result["title"]), HEADER[:2], HEADER[2:])
    for row in cells(result):
        table.add_row(*map(escape, row))
    table.caption, table.caption_justify = escape(result["remark"]) or None, "left"
    return table
