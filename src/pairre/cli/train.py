"""The command `train`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pairre.cli import tables
from pairre.cli.console import echo, err, out
from pairre.cli.options import (
    Columns,
    Delimiter,
    Device,
    Header,
    OptionalGraphArgument,
    RecipeSource,
    Settings,
    Shares,
    SplitSeed,
    Unverified,
    read_graph,
)
from pairre.cli.source_options import NO_OPTIONS, SourceOptions, with_source_options
from pairre.support.errors import PairREError, RecipeError
from pairre.support.launch import launch
from pairre.support.processes import join_processes, place
from pairre.support.text import shell_word

if TYPE_CHECKING:
    from pairre.graph import Graph
    from pairre.runs import Run
    from pairre.studies.effort import EffortName

# What `train` does without a recipe or a setting: None trains with the default settings. `standard` becomes the default
# when benchmarks/effort.py shows on a GPU, too, that it is better and takes at most twice as long.
_DEFAULT_EFFORT: EffortName | None = None


@with_source_options
def command(
    context: typer.Context,
    run: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder to make (or to --resume).")],
    graph: OptionalGraphArgument = None,
    recipe: RecipeSource = None,
    settings: Settings = None,
    rules_file: Annotated[
        Path | None,
        typer.Option("--rules", metavar="FILE", help="Rules to follow, as `pairre rules mine` writes them."),
    ] = None,
    init_vectors: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Parquet with the columns name, vector: where these entities start."),
    ] = None,
    freeze_vectors: Annotated[
        bool, typer.Option("--freeze-vectors", help="Keep the vectors of --init-vectors as they are.")
    ] = False,
    device: Device = "auto",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue a run that was stopped, killed or cut off; GRAPH may be left out. "
            "`--set train.steps=N` trains a run longer.",
        ),
    ] = False,
    init_from: Annotated[
        Path | None,
        typer.Option("--init-from", metavar="RUN", help="A run whose vectors entities and relations of its names get."),
    ] = None,
    teacher: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A run on GRAPH, such as an ensemble, whose scores are learnt, too."),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1, max=1000, help="Train so many times, seeds 0, 1, …, into RUN/seed-0, …: on a GPU all at once."
        ),
    ] = 1,
    effort: Annotated[
        Literal["quick", "standard", "best"] | None,
        typer.Option(
            help="Find out which model fits GRAPH: in about a minute, in twice or in ten times the time of a training."
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long --effort may take in all: `90s`, `10m`, `1h30m`."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan of --effort, and train nothing.")] = False,
    nproc: Annotated[
        int,
        typer.Option(min=1, help="Processes on this machine that divide the rows of entities; on many, use torchrun."),
    ] = 1,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write RUN/tensorboard.")] = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    split: Shares = "90/5/5",
    split_seed: SplitSeed = 0,
    unverified: Unverified = False,
    source: SourceOptions = NO_OPTIONS,
) -> None:
    """Train on a graph, keep the best weights, and rank the test split at the end.

    Ctrl-C saves and stops; the same command with `--resume` continues, on the CPU to the very bits of an unbroken run.
    So does `pairre train --resume --out RUN`. With `--effort`, several models are tried, and the best are combined.

    Examples:

        pairre train atlas --out runs/atlas

        pairre train my-triples.csv --out runs/mine --set model.dim=100 --set train.steps=5000

        pairre train my-triples.csv --effort standard --out runs/best

        pairre train atlas --effort quick --time 30s --out runs/soon

        pairre train fb15k-237 --recipe fb15k-237 --out runs/fb --seeds 3

        pairre train --resume --out runs/mine --set train.steps=10000

        pairre train grown.csv --init-from runs/mine --out runs/grown

        pairre train atlas --teacher runs/both --set sampling.negatives=0 --out runs/student

        pairre train links.csv --labels names.csv --types kinds.csv --out runs/links

        pairre train big.tsv --out runs/big --nproc 2

        pairre train --sparql http://localhost:7878/query --query links.rq --out runs/endpoint
    """
    if nproc > 1 and place() is None:
        raise typer.Exit(launch(context.obj, nproc, partial(echo, console=err)))
    from pairre.training import train, train_seeds

    processes = join_processes()
    if nproc not in (1, processes.size):
        raise PairREError(f"--nproc {nproc}: {processes.size} processes were started already; leave it out")
    reading = (columns, header, delimiter, split, split_seed, unverified, source)
    if graph is None and reading != (None, None, None, "90/5/5", 0, False, NO_OPTIONS):
        raise PairREError("options that say how GRAPH is read have no effect without GRAPH; leave them out")
    loaded = None if graph is None else read_graph(graph, *reading)
    options: dict[str, Any] = {"overrides": settings or (), "rules": rules_file, "init_from": init_from}
    options |= {"init_vectors": init_vectors, "freeze": freeze_vectors, "teacher": teacher}
    given = {**options, "recipe": recipe, "seeds": seeds > 1, "tensorboard": tensorboard, "nproc": processes.size > 1}
    if not resume and not any(given.values()):
        effort = effort or _DEFAULT_EFFORT
    if effort or time is not None or dry_run or (resume and _is_effort(run)):
        _refuse_with_effort(given)
        _train_best(loaded, run, effort, time, device, resume, dry_run)
        return
    options |= {"out": run, "resume": resume, "device": device}
    if seeds > 1:
        if tensorboard:
            raise RecipeError("--tensorboard shows one run: leave out --seeds")
        _show_seeds(train_seeds(loaded, recipe, seeds=range(seeds), **options), run)
        return
    graph_used = train(loaded, recipe, tensorboard=tensorboard, **options).graph
    if processes.is_first:
        _show_run(graph_used, run)


def _is_effort(run: Path) -> bool:
    """Return whether a run is the end of an effort, or will be."""
    from pairre.studies.effort.journal import PLAN, state_folder

    return (run / PLAN).exists() or (state_folder(run) / PLAN).exists()


def _refuse_with_effort(given: dict[str, Any]) -> None:
    """Raise a RecipeError if an option is given that says how to train, which an effort finds out."""
    flags = {"overrides": "--set", "freeze": "--freeze-vectors"}
    for name, value in given.items():
        if value:
            flag = flags.get(name, f"--{name.replace('_', '-')}")
            raise RecipeError(f"{flag}: --effort finds out by itself how to train; leave out {flag}, or --effort")


def _train_best(
    graph: Graph | None,
    run: Path,
    effort: EffortName | None,
    time: str | None,
    device: str,
    resume: bool,
    dry_run: bool,
) -> None:
    """Find out which model fits a graph, or only print the plan."""
    from pairre.studies.effort import effort_plan, train_best

    seconds = None if time is None else read_seconds(time)
    if dry_run:
        for line in effort_plan(graph, effort=effort or "standard", time=seconds, device=device).lines():
            echo(line)
        return
    found = train_best(graph, effort=effort, time=seconds, out=run, resume=resume, device=device)
    _show_run(found.graph, run)


def read_seconds(text: str) -> float:
    """Return the seconds of a time such as `90s`, `10m`, `1h30m` or `45`."""
    found = re.fullmatch(r"(?:(\d{1,7})h)?(?:(\d{1,7})m)?(?:(\d{1,9})s?)?", text.strip().lower())
    if not found or not any(found.groups()):
        raise PairREError(f"--time {text}: a time expected, such as 90s, 10m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(3600 * hours + 60 * minutes + seconds)


def _show_run(graph_used: Graph, run: Path) -> None:
    """Print the metrics of a run, and what can be done next."""
    from pairre.runs import RunFolder

    if metrics := RunFolder.open(run).metrics():
        out.print(tables.metrics_table(metrics))
    first = graph_used.train[0].tolist()
    head, relation = graph_used.show_entity(first[0]), graph_used.show_relation(first[1])
    echo(f"The run is in {run}. Next:")
    where = shell_word(run)
    if ranked := next((split for split in ("test", "valid") if len(graph_used.split(split))), None):
        echo(f"  pairre evaluate {where}{' --split valid' * (ranked == 'valid')} --by category")
    echo(f"  pairre predict {where} --head {shell_word(head)} --relation {shell_word(relation)}")


def _show_seeds(runs: list[Run], folder: Path) -> None:
    """Print the metrics of all seeds as one table."""
    from pairre.runs import RunFolder

    found = {run.path.name: RunFolder.open(run.path).metrics() for run in runs if run.path}
    if results := {name: metrics for name, metrics in found.items() if metrics}:
        out.print(tables.seeds_table(results))
    echo(f"The runs are in {folder}/seed-0 to seed-{len(runs) - 1}.")
