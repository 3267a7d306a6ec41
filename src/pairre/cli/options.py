"""Options that several commands share: which graph, how its files are read, which recipe, which device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pairre.cli.console import err
from pairre.cli.source_options import NO_OPTIONS, SourceOptions
from pairre.graph.formats import endings_help
from pairre.support.errors import PairREError
from pairre.support.text import shell_word, visible

if TYPE_CHECKING:
    from pairre.graph import Graph
    from pairre.graph.formats import Layout as TripleLayout

_SPLIT = "90/5/5"
# Choices that the package declares where torch is loaded, too; they are types, so mypy compares both.
Split = Literal["train", "valid", "test"]
By = Literal["side", "relation", "category"]
Layout = Literal["pca", "tsne"]
_graph = typer.Argument(
    metavar="GRAPH",
    help=f"A file of triples ({endings_help()}), a folder "
    "with train/valid/test, or a name: `atlas` is bundled, `pairre graphs` lists the public benchmarks.",
)
GraphArgument = Annotated[str, _graph]
OptionalGraphArgument = Annotated[str | None, _graph]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by `pairre train`.")]
RecipeSource = Annotated[
    str | None,
    typer.Option(
        "--recipe", help="A TOML file, or a name (`pairre recipes`). Without one, picked from the size of the graph."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, e.g. `--set train.lr=1e-3`. Repeatable."),
]
Device = Annotated[str, typer.Option(help="`auto` (the GPU if there is one), `cpu`, `cuda` or `cuda:1`.")]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify/--no-verify", help="Compare every file of the run with its checksum; huge tables load faster without."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")]
Columns = Annotated[
    str | None,
    typer.Option(help="Columns of head, relation and tail, by name or by number from 1: `--columns from,type,to`."),
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether files start with a header, if it is not found out rightly."),
]
Delimiter = Annotated[str | None, typer.Option(help="Delimiter of text files, if it is not found out rightly.")]
SkipUnknown = Annotated[
    bool, typer.Option("--skip-unknown", help="Leave out rows with a name that the graph lacks, and say how many.")
]
Shares = Annotated[str, typer.Option("--split", help="Shares of train/valid/test, only where GRAPH is one file.")]
SplitSeed = Annotated[int, typer.Option(help="Seed of that split.", min=0)]
Unverified = Annotated[
    bool, typer.Option("--unverified", help="Download GRAPH even if no checksum is known to verify it with.")
]


def triple_layout(columns: str | None, header: bool | None, delimiter: str | None) -> TripleLayout:
    """Return how the options of a command say that a file of triples is to be read."""
    from pairre.graph.formats import Layout

    return Layout(_columns(columns), header, _delimiter(delimiter))


def read_graph(
    graph: str,
    columns: str | None,
    header: bool | None,
    delimiter: str | None,
    split: str,
    seed: int,
    unverified: bool = False,
    source: SourceOptions = NO_OPTIONS,
) -> Graph:
    """Return the graph that the options of a command describe."""
    from pairre.graph import load_graph

    layout, shares = read_layout(columns, header, delimiter), read_shares(split)
    options = {**layout, "split": shares, "seed": seed, "unverified": unverified, **source.arguments()}
    if source.sparql:  # it has a bar of its own
        return load_graph(**options)
    with err.status(f"reading {graph}") as spinner:

        def is_header(question: str) -> bool:
            spinner.stop()
            return typer.confirm(f"{visible(question)}. Leave it out?", default=True, err=True)

        can_ask = sys.stdin is not None and sys.stdin.isatty() and err.is_terminal
        if header is None and can_ask:
            options["header"] = is_header
        return load_graph(graph, **options)


def reading_words(
    columns: str | None,
    header: bool | None,
    delimiter: str | None,
    split: str,
    seed: int,
    unverified: bool,
    source: SourceOptions,
) -> list[str]:
    """Return the options of a command that say how its graph is read, for a command line that reads it likewise.

    Words are quoted for a shell; options with their default are left out.
    """
    words = [f"--columns {shell_word(columns)}"] if columns is not None else []
    if header is not None:
        words.append("--header" if header else "--no-header")
    if delimiter is not None:
        words.append(f"--delimiter {shell_word(delimiter)}")
    if split != _SPLIT:
        words.append(f"--split {shell_word(split)}")
    if seed:
        words.append(f"--split-seed {seed}")
    return [*words, *["--unverified"] * unverified, *source.words()]


def read_layout(columns: str | None, header: bool | None, delimiter: str | None) -> dict[str, Any]:
    """Return how the options of a command say that files are read, as arguments of the function that reads them."""
    return {"columns": _columns(columns), "header": header, "delimiter": _delimiter(delimiter)}


def _columns(text: str | None) -> tuple[str, str, str] | None:
    if text is None:
        return None
    picked = [name.strip() for name in text.split(",")]
    if len(picked) != 3 or not all(picked):
        raise PairREError(f"--columns {text}: three columns expected, e.g. --columns head,relation,tail")
    return picked[0], picked[1], picked[2]


def _delimiter(text: str | None) -> str | None:
    if text is None:
        return None
    character = {"\\t": "\t", "tab": "\t", "comma": ",", "space": " "}.get(text, text)
    if len(character) != 1:
        raise PairREError(f"--delimiter {text}: one character expected, or tab, comma, space")
    return character


def read_shares(text: str) -> tuple[float, float, float]:
    """Return the fractions of train, valid and test that an option says."""
    if text == _SPLIT:
        from pairre.graph.split import DEFAULT_FRACTIONS

        return DEFAULT_FRACTIONS
    try:
        train_share, valid_share, test_share = (float(part) / 100 for part in text.split("/"))
    except ValueError:
        raise PairREError(f"--split {text}: three percentages expected, e.g. 90/5/5") from None
    return train_share, valid_share, test_share
