"""Lay out results as tables for a terminal.

Nothing is computed here beyond a mean and a standard deviation.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairre.support.terminal import Table, Text
from pairre.support.text import visible

if TYPE_CHECKING:
    from pairre.graph import Graph
    from pairre.graph.benchmarks import Benchmark
    from pairre.graph.statistics import GraphStatistics
    from pairre.inference.predict import Prediction, Predictions
    from pairre.inference.score import TripleScore
    from pairre.models import Model
    from pairre.rules import Implied, Rule
    from pairre.runs import FileReport
    from pairre.studies.reproduce.experiments import Experiment
    from pairre.studies.tune import Tuned


def new_table(title: str, left: Iterable[str], right: Iterable[str] = ()) -> Table:
    """Return an empty table with columns of text, to the left, and of numbers, to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right")
    return table


def _metric_cells(values: Mapping[str, float]) -> list[str]:
    """Return a cell for every declared metric; one that `values` lacks, as results of old runs may, stays empty."""
    from pairre.evaluation import METRICS

    return [metric.format(values[key]) if key in values else "" for key, metric in METRICS.items()]


def _metric_labels() -> list[str]:
    from pairre.evaluation import METRICS

    return [metric.label for metric in METRICS.values()]


def metrics_table(result: dict[str, Any]) -> Table:
    """Return the metrics of both sides and of each, with intervals and both ways to count ties."""
    protocol = result.get("protocol", "filtered")
    title = f"{visible(result['graph'])}, {visible(result['split'])}: {result['num_triples']:,} triples, {protocol}"
    table = new_table(title, [""], _metric_labels())
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
    table = new_table(
        f"{visible(first['graph'])}, {first['split']}, {protocol}: {len(results)} seeds", [""], _metric_labels()
    )
    for name, result in results.items():
        table.add_row(name, *_metric_cells(result["both"]))
    values = {key: [result["both"][key] for result in results.values()] for key in first["both"]}
    for name, statistic in (("mean", statistics.mean), ("std", statistics.stdev)):
        table.add_row(name, *_metric_cells({key: statistic(v) for key, v in values.items()}), style="bold")
    return table


def ensemble_table(graph_name: str, origin: Mapping[str, Any]) -> Table:
    """Return the members of an ensemble with their weights, and the MRR of each alone and of all together."""
    title = f"{visible(graph_name)}: {origin['num_triples']:,} validation triples, weights {origin['weights']}"
    table = new_table(title, ["member", "model"], ["MRR", "temperature", "weight"])
    for member in origin["members"]:
        numbers = f"{member['temperature']:.3g}", f"{member['weight']:.3f}"
        table.add_row(visible(member["run"]), visible(member["model"]), f"{member['valid_mrr']:.4f}", *numbers)
    left_out = origin["left_out_mrr"][origin["weights"]]
    table.add_row("all", "", f"{origin['valid_mrr']:.4f}", "", "", style="bold")
    table.add_row("all, on triples left out of the fit", "", f"{left_out:.4f}", "", "", style="bold")
    return table


def evaluation_tables(result: dict[str, Any]) -> list[Table]:
    """Return the table of metrics, followed by a breakdown by relation or category where the result has one."""
    shown = [metrics_table(result)]
    if "plausible" in result:
        shown.append(_plausible_table(result["plausible"]))
    for by in ("relation", "category"):
        if f"by_{by}" in result:
            shown.append(_breakdown_table(by, result[f"by_{by}"]))
    return shown


def _plausible_table(result: dict[str, Any]) -> Table:
    lost = ", ".join(f"{number:,} {side}s" for side, number in result["num_lost"].items())
    table = new_table(f"\namong plausible entities ({lost} are not, and count as last)", [""], _metric_labels())
    for name, key in (("both sides", "both"), ("heads", "head"), ("tails", "tail")):
        table.add_row(name, *_metric_cells(result[key]), style="bold" if key == "both" else None)
    return table


def _breakdown_table(by: str, groups: Mapping[str, dict[str, Any]]) -> Table:
    from pairre.evaluation import BREAKDOWN_METRICS, METRICS

    metrics = [METRICS[key] for key in BREAKDOWN_METRICS]
    columns = [column for metric in metrics for column in (metric.label, "heads", "tails")]
    table = new_table(f"\nby {by}", [by], ["triples", *columns])
    ordered = sorted(groups, key=lambda name: -groups[name]["num_triples"]) if by == "relation" else groups
    for name in ordered:
        group = groups[name]
        cells = [metric.format(group[side][metric.key]) for metric in metrics for side in ("both", "head", "tail")]
        table.add_row(group.get("shown", name), f"{group['num_triples']:,}", *cells)
    return table


def predictions_table(answers: Predictions, graph: Graph) -> Table:
    """Return the predictions, best first, with labels or short names where the graph has any."""
    table = new_table("", ["", "head", "relation", "tail"], ["score", *_probability_title(answers)])
    table.add_column("known")
    for a, (head, relation, tail) in zip(answers, answers.triples.tolist(), strict=True):
        names = graph.show_entity(head), graph.show_relation(relation), graph.show_entity(tail)
        probability = [] if a.base_rate is None else ["" if a.probability is None else f"{a.probability:.0%}"]
        table.add_row(str(a.rank), *names, f"{a.score:.4f}", *probability, a.known or "")
    return table


def _probability_title(rows: Sequence[Prediction | TripleScore]) -> list[str]:
    """Return the title of a column of probabilities, which says what they refer to; none where there are none."""
    rate = next((row.base_rate for row in rows if row.base_rate is not None), None)
    return [] if rate is None else [f"probability (base rate {rate:.0%})"]


def _shown_triple(graph: Graph, head: str, relation: str, tail: str) -> tuple[str, str, str]:
    """Return a triple as a person reads it: by label where there is one, else by CURIE, else by name."""
    entities = (graph.show_entity(graph.entities.id(name)) for name in (head, tail))
    return next(entities), graph.show_relation(graph.relations.id(relation)), next(entities)


def links_table(links: Sequence[Prediction], graph: Graph) -> Table:
    """Return links that were discovered, best first, with labels or short names where the graph has any."""
    table = new_table("", ["", "head", "relation", "tail"], ["score", "probability"])
    for a in links:
        names = _shown_triple(graph, a.head, a.relation, a.tail)
        table.add_row(str(a.rank), *names, f"{a.score:.4f}", "" if a.probability is None else f"{a.probability:.3f}")
    return table


def scores_table(scores: Sequence[TripleScore], graph: Graph) -> Table:
    """Return the scores of given triples; `tail %` is the percentile of the tail."""
    titles = ["score", "head rank", "tail rank", "tail %", *_probability_title(scores)]
    table = new_table("", ["head", "relation", "tail"], titles)
    table.add_column("known")
    for s in scores:
        numbers = (_number(s.head_rank, 1), _number(s.tail_rank, 1), _number(s.tail_percentile, 2))
        probability = [] if s.base_rate is None else ["" if s.probability is None else f"{s.probability:.0%}"]
        names = _shown_triple(graph, s.head, s.relation, s.tail)
        table.add_row(*names, f"{s.score:.4f}", *numbers, *probability, s.known or "")
    return table


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def statistics_tables(s: GraphStatistics, graph: Graph, most: int = 10) -> list[Table]:
    """Return four tables: triples as read, sizes and irregularities, categories and the most frequent relations."""
    examples = new_table("triples as read", ["head", "relation", "tail"])
    for triple in s.examples:
        examples.add_row(*_shown_triple(graph, *triple))
    title = f"\n{visible(s.name)}: {s.num_entities:,} entities, {s.num_relations:,} relations"
    sizes = new_table(title, [""], s.num_triples)
    for name, values in (
        ("triples", s.num_triples),
        ("repeated triples", s.num_duplicates),
        ("entities unseen in train", s.num_unseen_entities),
        ("relations unseen in train", s.num_unseen_relations),
    ):
        sizes.add_row(name, *(f"{values[c]:,}" if c in values else "" for c in s.num_triples))
    for pair, count in s.num_shared.items():
        sizes.add_row(f"triples in both {pair.replace('-', ' and ')}", f"{count:,}")
    for name, key in (
        ("reversed in train by an inverse relation", "inverse"),
        ("in train by an equivalent relation", "equivalent"),
        ("both entities linked in train", "linked"),
    ):
        sizes.add_row(name, *(f"{s.leakage[c][key]:,}" if key in s.leakage.get(c, {}) else "" for c in s.num_triples))
    for what, number in s.skipped.items():
        sizes.add_row(f"triples left out: {what}", f"{number:,}")
    for what, number in s.num_labelled.items():
        if number:
            sizes.add_row(f"{what} with a label", f"{number:,}")
    if s.num_types:
        sizes.add_row(f"entities with one of {s.num_types:,} types", f"{s.num_typed_entities:,}")
    categories = new_table(
        "\nrelation categories (from 1.5 up a side is N)", ["category"], ["relations", "train triples"]
    )
    for name, counts in s.categories.items():
        categories.add_row(name, f"{counts['relations']:,}", f"{counts['triples']:,}")
    frequent = new_table(
        f"\nthe {min(most, len(s.relations))} most frequent relations in train",
        ["relation"],
        ["triples", "tails per head", "heads per tail", "category"],
    )
    for r in s.relations[:most]:
        means = (f"{r.tails_per_head:.2f}", f"{r.heads_per_tail:.2f}")
        frequent.add_row(r.shown, f"{r.num_triples:,}", *means, r.category)
    return [examples, sizes, categories, frequent]


def files_table(run: Path, reports: Sequence[FileReport]) -> Table:
    """Return the files of a run folder, each with what it holds or what is wrong with it."""
    table = new_table(str(run), ["file", "", ""])
    for report in reports:
        mark = "✗" if report.fault else "✓"
        table.add_row(report.name, mark, report.fault or report.note, style="bold red" if report.fault else "")
    return table


def rules_tables(rules: Sequence[Rule], top: int, shown_names: Mapping[str, str]) -> list[Table]:
    """Return how many rules there are of each kind, and the first `top` of them, with relations as people read them."""
    from pairre.rules import KINDS

    counts = new_table(f"{len(rules):,} rules", ["kind"], ["rules"])
    for kind in KINDS:
        counts.add_row(kind, f"{sum(rule.kind == kind for rule in rules):,}")
    shown = rules[:top]
    strongest = new_table(f"\nthe {len(shown)} strongest", ["rule"], ["confidence", "PCA", "support", "head coverage"])
    for r in shown:
        values = (f"{r.confidence:.3f}", f"{r.pca_confidence:.3f}", f"{r.support:,}", f"{r.head_coverage:.3f}")
        strongest.add_row(r.formula(shown_names), *values)
    return [counts, strongest] if shown else [counts]


def implied_table(facts: Sequence[Implied], graph: Graph) -> Table:
    """Return facts that rules imply, most confident first, each with the most confident of its rules."""
    table = new_table("", ["", "head", "relation", "tail"], ["confidence"])
    table.add_column("rule", overflow="fold")
    for fact in facts:
        more = f" and {len(fact.rules) - 1} more" if len(fact.rules) > 1 else ""
        rule = fact.rules[0]
        relations = {name: graph.show_relation(graph.relations.id(name)) for name in (*rule.body, rule.conclusion)}
        names = _shown_triple(graph, fact.head, fact.relation, fact.tail)
        table.add_row(str(fact.rank), *names, f"{fact.confidence:.3f}", f"{rule.formula(relations)}{more}")
    return table


def mixture_table(result: dict[str, Any]) -> Table:
    """Return the metrics of a run alone and with rules beside it."""
    title = f"{visible(result['graph'])}, {result['split']}, filtered: {result['num_rules']:,} rules beside the model"
    table = new_table(title, [""], _metric_labels())
    for name, key in (("model alone", "without_rules"), ("with rules", "with_rules")):
        table.add_row(name, *_metric_cells(result[key]["both"]))
    return table


def tuning_table(found: Tuned) -> Table:
    """Return the settings of the best trial, and how much each mattered."""
    table = new_table(f"best of {found.num_trials} trials", ["key"], ["value", "importance"])
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
    table = new_table("graphs by name", ["name"], ["entities", "relations", "train", "valid", "test"])
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
    from pairre.models import PATTERNS

    num_entities, num_relations, dim = sizes
    title = f"models; parameters for {num_entities:,} entities, {num_relations:,} relations, dim {dim:,}"
    table = new_table(title, ["name", "score, and paper"], ["parameters"])
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
    table = new_table(f"{title}, for --recipe", ["name", "what it is for"])
    table.columns[0].no_wrap = True
    for name, purpose in purposes.items():
        table.add_row(name, purpose)
    return table


def keys_table(keys: Iterable[tuple[str, Field[Any]]]) -> Table:
    """Return every recipe key with its default and help."""
    table = new_table("\nkeys, for a recipe file or --set", ["key", "default", "what it is"])
    for path, declaration in keys:
        table.add_row(path, str(declaration.default), declaration.metadata["help"])
    return table


def experiments_table(experiments: Iterable[Experiment]) -> Table:
    """Return the experiments that can be reproduced, and what each needs."""
    table = new_table("Tables and figures of the paper", ["name", "what", "graphs", "seeds", "needs"])
    table.columns[0].no_wrap = True
    for experiment in experiments:
        graphs = ", ".join(dict.fromkeys(trial.graph for trial in experiment.trials))
        table.add_row(experiment.name, experiment.title, graphs, str(experiment.seeds), experiment.needs)
    return table


def reproduction_table(result: dict[str, Any]) -> Table:
    """Return the reproduced figures beside the published ones; `result` is `Reproduced.as_dict()`."""
    from pairre.studies.reproduce.page import HEADER, cells

    table = new_table(visible(result["title"]), HEADER[:2], HEADER[2:])
    for row in cells(result):
        table.add_row(*row)
    table.caption, table.caption_justify = visible(result["remark"]) or None, "left"
    return table
