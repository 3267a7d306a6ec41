"""The command line: parse, call one function, print. Errors of the user become one line and exit code 2."""

from __future__ import annotations

import csv
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from pairre import __version__
from pairre.cli import tables
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
from pairre.cli.report import report_command
from pairre.cli.reproduce import reproduce_command
from pairre.cli.tune import tune_command
from pairre.evaluation.evaluate import By, evaluate
from pairre.graph import Split
from pairre.graph.benchmarks import BENCHMARKS
from pairre.graph.statistics import graph_statistics
from pairre.inference.predict import predict
from pairre.models import MODELS
from pairre.rules import KINDS, mine, write_rules
from pairre.runs.folder import Run, RunFolder, load_run
from pairre.runs.merge import merge
from pairre.settings.recipe import keys, load_recipe, recipe_purposes
from pairre.support.errors import PairREError, RecipeError
from pairre.support.files import write_json
from pairre.training.train import TrainingInterruptedError, train, train_seeds

app = typer.Typer(
    name="pairre",
    help="Knowledge-graph completion with PairRE: a graph in, ranked predictions out.\n\n"
    "Start with:  pairre train atlas --out runs/atlas",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
rules = typer.Typer(help="Rules between relations, such as: who is the mother of someone is a parent of theirs.")
app.add_typer(rules, name="rules", no_args_is_help=True)
out, err = Console(), Console(stderr=True)


Format = Literal["table", "json", "csv"]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by `pairre train`.")]


@app.command()
def stats(
    graph: GraphArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with every relation.")] = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    split: Shares = "90/5/5",
    split_seed: SplitSeed = 0,
) -> None:
    """Show what a graph is like: sizes, faults, relation categories, the most frequent relations."""
    statistics = graph_statistics(read_graph(graph, columns, header, delimiter, split, split_seed))
    if as_json:
        print(json.dumps(statistics.as_dict(), indent=2, ensure_ascii=False))
    else:
        out.print(*tables.statistics_tables(statistics), sep="\n")


@app.command("train")
def train_command(
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

    Ctrl-C saves and stops; the same command with `--resume` goes on, on the CPU to the very bits an unbroken run has.
    """
    loaded = read_graph(graph, columns, header, delimiter, split, split_seed)
    options: dict[str, Any] = {"overrides": settings or (), "rules": rules_file, "out": run, "resume": resume}
    options["device"] = device
    if seeds > 1:
        if tensorboard:
            raise RecipeError("--tensorboard shows one run: leave out --seeds")
        runs = train_seeds(loaded, recipe, seeds=range(seeds), **options)
        metrics = {r.path.name: r.path / "metrics.json" for r in runs if r.path}
        results = {name: json.loads(f.read_text(encoding="utf-8")) for name, f in metrics.items() if f.exists()}
        if results:
            out.print(tables.seeds_table(results))
        _say(f"The runs are in {run}/seed-0 to seed-{seeds - 1}.")
        return
    trained = train(loaded, recipe, tensorboard=tensorboard, **options)
    metrics_file = run / "metrics.json"
    if metrics_file.exists():
        out.print(tables.metrics_table(json.loads(metrics_file.read_text(encoding="utf-8"))))
    head, relation, _ = next(trained.graph.names(trained.graph.train[:1]))
    _say(f"The run is in {run}. Next:")
    _say(f"  pairre evaluate {run} --by category")
    _say(f'  pairre predict {run} --head "{head}" --relation "{relation}"')


@app.command("evaluate")
def evaluate_command(
    run: RunArgument,
    split: Annotated[Split, typer.Option(help="Which triples are ranked.")] = "test",
    by: Annotated[By, typer.Option(help="Break the metrics down.")] = "side",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write them as JSON; - prints.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Rank each triple of a split among all heads and all tails, other known triples left out.

    Ties count as the mean of the best and the worst rank; both extremes and a 95% bootstrap interval are shown beside.
    """
    opened = _open(run, device)
    total = 2 * len(opened.graph.split(split)) * opened.graph.num_entities
    with _progress("ranking", total) as advance:
        result = evaluate(opened, split, by, advance)
    if json_file == Path("-"):
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    if json_file is not None:
        write_json(json_file, result)
    out.print(*tables.evaluation_tables(result), sep="\n")


@app.command("predict")
def predict_command(
    run: RunArgument,
    head: Annotated[str | None, typer.Option(help="Name of the head entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="Name of the relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Name of the tail entity.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many answers.", min=1)] = 10,
    known: Annotated[bool, typer.Option("--known/--no-known", help="Keep triples the graph has, marked.")] = False,
    format: Annotated[Format, typer.Option(help="How to print them.")] = "table",
    device: Device = "auto",
) -> None:
    """Name the most plausible tails of a head and relation, heads of a relation and tail, or relations of a pair."""
    answers = predict(_open(run, device), head=head, relation=relation, tail=tail, k=k, known=known)
    rows = [asdict(answer) for answer in answers]
    if format == "json":
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    elif format == "csv":
        writer = csv.DictWriter(sys.stdout, ["rank", "head", "relation", "tail", "score", "known"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        out.print(tables.predictions_table(answers))


@app.command("merge")
def merge_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders of PairRE on one graph.")],
    folder: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder to make.")],
    device: Device = "auto",
) -> None:
    """Merge runs of PairRE, say of several seeds, into one whose scores are the mean of theirs.

    That is mostly better than each. Vectors are set side by side, so the result is a run of PairRE like any other, as
    large as all of them together: evaluate it, ask it, report on it.
    """
    RunFolder.check_free(folder)
    merged = merge([_open(run, device) for run in runs])
    merged.save(folder)
    _say(f"The run is in {folder}, {merged.model.dim:,} features. Next:")
    _say(f"  pairre evaluate {folder}")


@rules.command("mine")
def mine_command(
    graph: GraphArgument,
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file of rules to write, also .gz or .zst.")],
    kind: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="Only rules of this kind. Repeatable; else all.")
    ] = None,
    min_support: Annotated[
        int, typer.Option(min=1, help="Support: pairs of entities for which body and head both hold.")
    ] = 10,
    min_head_coverage: Annotated[
        float,
        typer.Option(min=0, max=1, help="Head coverage: the share of the head relation's facts that are support."),
    ] = 0.01,
    min_confidence: Annotated[
        float, typer.Option(min=0, max=1, help="Confidence: of the pairs where the body holds, how many are support.")
    ] = 0.8,
    min_pca_confidence: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="PCA confidence: the same, only of entities with some fact of the head relation."
        ),
    ] = 0.0,
    top: Annotated[int, typer.Option(min=0, help="How many of the strongest rules to show.")] = 10,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    split: Shares = "90/5/5",
    split_seed: SplitSeed = 0,
) -> None:
    """Find the rules that the train split of a graph follows, count exactly how well, and write them as TSV.

    Kinds: subrelation r(x, y) ⇒ s(x, y); inverse r(x, y) ⇒ s(y, x); symmetry r(x, y) ⇒ r(y, x); equivalence
    r(x, y) ⇔ s(x, y); composition r(x, y) ∧ s(y, z) ⇒ t(x, z). A rule must reach all thresholds.
    """
    if file.exists() and not force:
        raise PairREError(f"{file}: there already; write to another file, or overwrite it with --force")
    if not file.parent.is_dir():
        raise PairREError(f"{file}: there is no folder {file.parent}; make it first")
    loaded = read_graph(graph, columns, header, delimiter, split, split_seed)
    with _progress("mining", 1) as advance:
        found = mine(
            loaded,
            kind or KINDS,
            min_support=min_support,
            min_head_coverage=min_head_coverage,
            min_confidence=min_confidence,
            min_pca_confidence=min_pca_confidence,
            progress=advance,
        )
    write_rules(file, found)
    out.print(*tables.rules_tables(found, top), sep="\n")
    _say(f"The rules are in {file}.")


@app.command()
def graphs() -> None:
    """List the graphs that go by a name, with their sizes and licences."""
    out.print(tables.benchmarks_table(BENCHMARKS))


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this recipe whole, as TOML.")] = None,
) -> None:
    """List the recipes that come with pairre and every key a recipe may set."""
    if name is not None:
        print(load_recipe(name).to_toml(), end="")
    else:
        out.print(tables.recipes_table(recipe_purposes()), tables.keys_table(keys()), sep="\n")


app.command("tune")(tune_command)
app.command("report")(report_command)
app.command("reproduce")(reproduce_command)


@app.command("models")
def models_command(
    entities: Annotated[int, typer.Option(min=1, help="Entities of the graph to count parameters for.")] = 14_541,
    relations: Annotated[int, typer.Option(min=1, help="Its relations.")] = 237,
    dim: Annotated[int, typer.Option(min=1, help="Features of an entity vector, as model.dim.")] = 200,
) -> None:
    """List the models: score, number of parameters on a graph of given sizes, patterns, paper.

    Train one with `--set model.name=NAME`. The sizes are FB15k-237's unless given. A model can express the patterns
    with a tick: symmetry, antisymmetry, inverse, composition, subrelation.
    """
    out.print(tables.models_table(MODELS, (entities, relations, dim)))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pairre {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of every command."""


def _open(run: Path, device: str) -> Run:
    with err.status(f"opening {run}"):
        return load_run(run, device)


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[float], None]]:
    """A bar on a terminal, nothing elsewhere."""
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda amount: bar.advance(task, amount)


def _say(text: str) -> None:
    """A line as it is, never wrapped, so that it can be copied."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)


class _Notes(logging.Handler):
    """Warnings of the library, one line each on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print(f"note: {record.getMessage()}", highlight=False, markup=False, soft_wrap=True, style="yellow")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    log = logging.getLogger("pairre")
    log.handlers, log.propagate = [_Notes()], False
    try:
        app(arguments, prog_name="pairre")
    except TrainingInterruptedError as stop:
        _fail(str(stop), stop.exit_code)
    except RecipeError as error:
        _fail(f"{error} (pairre recipes lists every key)" if "unknown" in str(error) else str(error), 2)
    except PairREError as error:
        _fail(str(error), 2)
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None


def _fail(message: str, code: Any) -> None:
    err.print(f"pairre: {' '.join(message.split())}", highlight=False, markup=False, soft_wrap=True)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
