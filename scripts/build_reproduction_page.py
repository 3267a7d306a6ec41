"""Write docs/reproduction.md from the kept tables of `pairre reproduce`: python scripts/build_reproduction_page.py."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairre.studies.reproduce import EXPERIMENTS, Experiment, Reproduced, Row, Trial, find
from pairre.studies.reproduce.experiments import pattern_figures
from pairre.studies.reproduce.page import HEADER, beyond, cells, label

_SCRIPT = Path(__file__).name
PAGE = Path(__file__).resolve().parents[1] / "docs" / "reproduction.md"
RESULTS = PAGE.parent / "results"
FIGURES = PAGE.parent / "figures"
_OPENING = """# The paper's tables and figures, reproduced

Made by `scripts/build_reproduction_page.py` from the files `results/reproduce-*.json`, which hold every single value,
and from those of benchmarks that trained the same recipes.

The tables and figures of experiments in Chao et al., "PairRE: Knowledge Graph Embeddings via Paired Relation Vectors"
(ACL 2021). `pairre reproduce NAME` trains what a table needs, by the recipes that come with the package, and prints it
as it stands here; `--json FILE` writes the file. The [how-to page](how-to/reproduce.md) says where graphs are found and
runs are kept.

Ours are metrics of the test split, mean ± standard deviation over seeds (one run where no number of seeds is said). A
difference with a star is beyond two standard deviations of the two together (√(s₁² + s₂²); where only one is known, of
that one; where none is, there is no star), and each of these is explained below its table. The time a seed is what all
seeds took together, from a loaded graph to the test metrics, divided by their number; several of these runs shared
their machine with others, so it is no measure of speed ([benchmarks](benchmarks.md) are).
"""
_ABSENT = {  # graphs that could not be had
    "ogbl-wikikg2": "the data of ogbl-wikikg2",
    "ogbl-biokg": "the data of ogbl-biokg",
    "db100k": "the train split of DB100k",
}
_LACROIX = (
    "The published figure is older than training by softmax over all entities with reciprocal relations and the N3 "
    "penalty (Lacroix et al., ICML 2018), which this recipe does; the next table trains as was done before."
)
_AS_PUBLISHED = (
    "Little is known of the published run but the loss, the features and the length of entities. Here Adam takes steps "
    "of 8,192 positives; few settings were tried."
)
_SHARED = (
    "The settings are the published ones but for negatives, which the positives of a batch share here. Whether that is "
    "the reason was not tried."
)
_BEYOND = (
    "Not the settings of the paper: relations are corrupted, too, a positive counts less the more answers its question "
    "has, the rate falls linearly, and there are fewer steps."
)
# Why ours differs, by experiment, row and metric; "*" stands for all metrics of the row.
EXPLANATIONS: dict[tuple[str, str, str], str] = {
    ("fb15k", "PairRE", "mrr"): _SHARED,
    ("fb15k-rules", "PairRE", "mrr"): _SHARED,
    ("categories", "PairRE", "*"): "The paper's row is no mean over test triples: weighted by the triples of each "
    "category (963, 5,645, 9,332, 43,131) it would be 0.923 in all, but its own total is 0.896, as ours is. Our mean "
    "over relations of a category, 0.856 / 0.922 / 0.888 / 0.937 (seed 0, "
    "[values](results/report-fb15k-2026-11-15.json)), has the order of the paper's row, so it may have been made like "
    "that. The paper's rows for other systems, taken from the RotatE paper, are means over triples.",
    ("best-fb15k-237", "one model", "*"): _BEYOND,
    ("best-fb15k-237", "two merged", "*"): _BEYOND + " Scores are the mean of two such models'.",
    ("best-fb15k", "one model", "*"): "Not the settings of the paper: rules are a penalty beside the loss, and a "
    "positive counts less the more answers its question has.",
    ("baselines", "TransE", "*"): "The published figure is older than the self-adversarial loss (Sun et al., ICLR "
    "2019), which this recipe has, with 1000 features.",
    ("baselines", "DistMult", "*"): _LACROIX,
    ("products", "DistMult", "*"): _AS_PUBLISHED,
    ("products", "ComplEx", "*"): _AS_PUBLISHED,
    ("baselines", "ConvE", "*"): "This recipe has larger batches than the published settings, and drops half of the "
    "hidden layer instead of 0.3, as its author advises.",
    ("baselines", "ComplEx", "*"): _LACROIX,
    ("baselines", "RotatE", "*"): "The published settings are 1000 complex features and 100,000 steps. This recipe has "
    "500 and 25,000, and shares its negatives within a batch.",
    ("baselines", "OTE", "*"): "The settings were chosen anew on the validation split: 20,000 steps, with negatives "
    "shared within a batch.",
    ("baselines", "GC-OTE", "*"): "The settings were chosen anew on the validation split, in few tries, and there are "
    "16,000 steps, with negatives shared within a batch. Only candidates have a context here, and a sampled one.",
}


@dataclass(frozen=True)
class Kept:
    """One table of a kept file."""

    file: str
    machine: Mapping[str, Any]
    settings: tuple[str, ...]
    table: Mapping[str, Any]
    command: str = ""  # that made it, where it was not `pairre reproduce`
    earlier: tuple[str, ...] = ()  # files that some of its rows are from


@dataclass(frozen=True)
class Star:
    """A difference beyond two standard deviations."""

    experiment: str
    row: str
    metric: str
    values: Mapping[str, Any]

    @property
    def explanation(self) -> str | None:
        """What is said for it, if anything."""
        places = ((self.experiment, self.row, metric) for metric in (self.metric, "*"))
        return next((EXPLANATIONS[place] for place in places if place in EXPLANATIONS), None)

    def __str__(self) -> str:
        ours, paper = self.values["mean"], self.values["published"][0]
        return f"{self.experiment}, {self.row}, {self.metric}: {ours:.6g}, published {paper:.6g}"


def newest() -> dict[str, Kept]:
    """Return the table of each experiment by name; of several that of the latest date, then that of the last name."""
    files = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in RESULTS.glob("reproduce-*.json")}
    tables = dict(_by_benchmarks())
    for name, kept in sorted(files.items(), key=lambda item: (item[1]["machine"]["date"], item[0])):
        for table in kept["tables"]:
            tables[find(table["name"]).name] = Kept(name, kept["machine"], tuple(kept["settings"]), table)
    return tables


def _by_benchmarks() -> Iterator[tuple[str, Kept]]:
    """Tables of runs that benchmarks made with the very recipes of an experiment."""
    for file in sorted(RESULTS.glob("gpu-published-*.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        runs = {"PairRE": result["published"]["runs"]}
        yield "fb15k-237", _measured(file, result, find("fb15k-237"), runs, "benchmarks/gpu.py", "wall_clock_s")
    by_recipe: dict[str, list[dict[str, Any]]] = {}
    earlier: list[str] = []
    for file in sorted(RESULTS.glob("models-fb15k-237-*.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        by_recipe |= {model["recipe"]: model["test"]["fb15k-237"]["runs"] for model in result["models"]}
        names = {
            trial.label: trial.recipe.replace("/", "-") for trial in find("baselines").trials
        }  # presets as once named
        labelled = {label: by_recipe[name] for label, name in names.items() if name in by_recipe}
        kept = _measured(file, result, find("baselines"), labelled, "benchmarks/models.py fb15k-237", "seconds")
        yield "baselines", replace(kept, earlier=tuple(earlier))
        earlier.append(file.name)


def _measured(
    file: Path,
    result: Mapping[str, Any],
    experiment: Experiment,
    runs: Mapping[str, list[dict[str, Any]]],
    command: str,
    seconds: str,
) -> Kept:
    """Return the table of an experiment from runs by the label of their row."""
    rows = []
    for trial in experiment.trials:
        if found := runs.get(trial.label):
            ours = {metric: [run[metric] for run in found] for metric in experiment.metrics}
            took = statistics.mean(run[seconds] for run in found)
            row = Row(trial.label, ours, dict(trial.published or {}), took, result["machine"]["gpu"])
            rows.append(row)
    return Kept(file.name, result["machine"], (), Reproduced(experiment, rows).as_dict(), f"python {command}")


def page() -> str:
    """Return the whole page; ends the script where a difference with a star has no explanation."""
    tables = newest()
    unexplained = [star for kept in tables.values() for star in _stars(kept) if star.explanation is None]
    if unexplained:
        lines = "".join(f"\n  {star}" for star in unexplained)
        raise SystemExit(f"beyond two standard deviations, and no word why in EXPLANATIONS of {_SCRIPT}:{lines}")
    return "\n".join([_OPENING, *(_section(experiment, tables.get(experiment.name)) for experiment in EXPERIMENTS)])


def _stars(kept: Kept) -> Iterator[Star]:
    for row in kept.table["rows"]:
        for metric, values in row["metrics"].items():
            if beyond(values):
                yield Star(kept.table["name"], row["label"], metric, values)


def _section(experiment: Experiment, kept: Kept | None) -> str:
    """Paragraphs with empty lines between them."""
    if kept is None:
        run = f"`pairre reproduce {experiment.name}` has not been run. It needs {experiment.needs}."
        parts = [run, _absent(experiment.trials)]
    else:
        parts = [_source(kept), _table(kept), _explained(kept), _left_out(experiment, kept), _figures(experiment)]
    return "\n\n".join(filter(None, [f"## {experiment.title}", *parts, experiment.remark])) + "\n"


def _source(kept: Kept) -> str:
    """Return the command, and when and by what it was run."""
    machine, versions = kept.machine, kept.machine["versions"]
    settings = (f"--set {setting}" for setting in kept.settings)
    command = kept.command or " ".join(["pairre reproduce", kept.table["name"], *settings])
    device = machine.get("gpu") or f"{machine['cores']} CPU cores"
    software = f"pairre {versions['pairre']}, torch {versions['torch']}, Python {versions['python']}"
    values = f"[values](results/{kept.file})"
    if kept.earlier:
        values += f", some rows from earlier ones: {', '.join(f'[{file}](results/{file})' for file in kept.earlier)}"
    return f"`{command}`, {machine['date']}, {device}, {software} ({values})."


def _table(kept: Kept) -> str:
    lines = (HEADER, ["---"] * len(HEADER), *cells(kept.table))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _explained(kept: Kept) -> str:
    """One line for each row and explanation, with the metrics that it is for."""
    lines: dict[tuple[str, str], list[str]] = {}
    for star in _stars(kept):
        lines.setdefault((star.row, star.explanation or ""), []).append(label(star.metric))
    return "\n".join(f"- \\* {row}, {', '.join(metrics)}: {text}" for (row, text), metrics in lines.items())


def _left_out(experiment: Experiment, kept: Kept) -> str:
    """Rows that the experiment has and the kept table has not."""
    there = {row["label"] for row in kept.table["rows"]}
    missing = [trial for trial in experiment.trials if trial.label not in there]
    if experiment.view == "patterns" or not missing:
        return ""
    return f"Left out: {', '.join(trial.label for trial in missing)}. {_absent(missing)}".strip()


def _absent(trials: Iterable[Trial]) -> str:
    """Return what is said of graphs that could not be had."""
    graphs = dict.fromkeys(_ABSENT[trial.graph] for trial in trials if trial.graph in _ABSENT)
    what = ", ".join(graphs)
    tested = "loader, protocol and recipe are tested on data of the same layout"
    return f"{what[:1].upper()}{what[1:]} could not be had where this was run; {tested}." if what else ""


def _figures(experiment: Experiment) -> str:
    """Return the histograms, where they are kept."""
    names = pattern_figures() if experiment.view == "patterns" else []
    return "\n".join(f"![{name}](figures/{name}.png)" for name in names if (FIGURES / f"{name}.png").exists())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
