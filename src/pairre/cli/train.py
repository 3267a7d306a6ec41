"""The command `train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from pairre.cli import tables
from pairre.cli.console import out, say
from pairre.cli.options import (
    Columns,
    Delimiter,
    Device,
    GraphArgument,
    Header,
    RecipeSource,
    Settings,
    Shares,
    SplitSeed,
    read_graph,
)
from pairre.runs import Run
from pairre.support.errors import RecipeError
from pairre.training import train, train_seeds


def command(
    graph: GraphArgument,
    run: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder to make (or to --resume).")],
    recipe: RecipeSource = None,
    settings: Settings = None,
    rules_file: Annotated[
        Path | None,
        typer.Option("--rules", metavar="FILE", help="Rules to follow, as `pairre rules mine` writes them."),
    ] = None,
    device: Device = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was stopped, killed or cut off.")
    ] = False,
    seeds: Annotated[
        int, typer.Option(min=1, help="Train so many times, seeds 0, 1, …, into RUN/seed-0, …: on a GPU all at once.")
    ] = 1,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write RUN/tensorboard.")] = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    split: Shares = "90/5/5",
    split_seed: SplitSeed = 0,
) -> None:
    """Train on a graph, keep the best weights, and rank the test split at the end.

    Ctrl-C saves and stops; the same command with `--resume` continues, on the CPU to the very bits of an unbroken run.

    Examples:

        pairre train atlas --out runs/atlas

        pairre train my-triples.csv --out runs/mine --set model.dim=100 --set train.steps=5000

        pairre train fb15k-237 --recipe fb15k-237 --out runs/fb --seeds 3
    """
    loaded = read_graph(graph, columns, header, delimiter, split, split_seed)
    options: dict[str, Any] = {"overrides": settings or (), "rules": rules_file, "out": run, "resume": resume}
    options["device"] = device
    if seeds > 1:
        if tensorboard:
            raise RecipeError("--tensorboard shows one run: leave out --seeds")
        _show_seeds(train_seeds(loaded, recipe, seeds=range(seeds), **options), run)
        return
    trained = train(loaded, recipe, tensorboard=tensorboard, **options)
    metrics_file = run / "metrics.json"
    if metrics_file.exists():
        out.print(tables.metrics_table(json.loads(metrics_file.read_text(encoding="utf-8"))))
    head, relation, _ = next(trained.graph.names(trained.graph.train[:1]))
    say(f"The run is in {run}. Next:")
    say(f"  pairre evaluate {run} --by category")
    say(f'  pairre predict {run} --head "{head}" --relation "{relation}"')


def _show_seeds(runs: list[Run], folder: Path) -> None:
    """Print the metrics of all seeds as one table."""
    files = {run.path.name: run.path / "metrics.json" for run in runs if run.path}
    results = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.exists()}
    if results:
        out.print(tables.seeds_table(results))
    say(f"The runs are in {folder}/seed-0 to seed-{len(runs) - 1}.")
