"""The command `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairre.cli import tables
from pairre.cli.console import echo, err, out
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
    Unverified,
    read_graph,
    reading_words,
)
from pairre.cli.source_options import NO_OPTIONS, SourceOptions, with_source_options
from pairre.support.terminal import BarColumn, MofNCompleteColumn, TimeRemainingColumn, progress
from pairre.support.text import shell_word

if TYPE_CHECKING:
    from pairre.studies.tune import Attempt


@with_source_options
def command(
    graph: GraphArgument,
    folder: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where the study and the best recipe are kept.")
    ],
    trials: Annotated[int, typer.Option(min=1, help="Trials in all, those of earlier calls included.")] = 20,
    timeout: Annotated[float | None, typer.Option(min=0, help="Begin no trial after so many seconds.")] = None,
    recipe: RecipeSource = None,
    space: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TOML file of ranges; without one, those of the guide.")
    ] = None,
    settings: Settings = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of what is tried; `train.seed` is the recipe's.")] = 0,
    device: Device = "auto",
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    split: Shares = "90/5/5",
    split_seed: SplitSeed = 0,
    unverified: Unverified = False,
    source: SourceOptions = NO_OPTIONS,
) -> None:
    """Find settings for a graph by trial, judged on its validation split, and write the best as a recipe.

    Trials that fall behind are pruned. However it ends, the same command goes on; the test split takes no part.

    Examples:

        pairre tune atlas --out runs/tuned --trials 20

        pairre tune my-triples.csv --out runs/tuned --timeout 3600 --space ranges.toml
    """
    from pairre.studies.tune import tune

    reading = (columns, header, delimiter, split, split_seed, unverified, source)
    loaded = read_graph(graph, *reading)
    with progress(err, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("tuning", total=trials)

        def report(attempt: Attempt) -> None:
            bar.update(task, completed=attempt.number)
            echo(_line(attempt, trials), err)

        found = tune(
            loaded,
            recipe,
            out=folder,
            space=space,
            overrides=settings or (),
            trials=trials,
            timeout=timeout,
            seed=seed,
            device=device,
            report=report,
        )
    out.print(tables.tuning_table(found))
    best = folder / "best.toml"
    echo(f"The best recipe is in {best}. Next:")
    words = [*([] if source.sparql else [shell_word(graph)]), *reading_words(*reading)]
    echo(f"  pairre train {' '.join(words)} --recipe {shell_word(best)} --out RUN")


def _line(attempt: Attempt, trials: int) -> str:
    """Return `trial 3/20  valid MRR 0.4123 (best)  train.lr=0.00213 …`, or what went wrong."""
    best = "" if attempt.best is None else " (best)" if attempt.mrr == attempt.best else f" (best {attempt.best:.4f})"
    value = attempt.state if attempt.mrr is None else f"valid MRR {attempt.mrr:.4f}"
    words = [f"trial {attempt.number:>3}/{trials}", f"{value}{' pruned' * (attempt.state == 'pruned')}{best}"]
    words += [f"{name}={tables.setting(value)}" for name, value in attempt.settings.items()]
    return "  ".join([*words, attempt.error]).rstrip()
