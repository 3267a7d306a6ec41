"""Options that several commands share: which graph, how its files are read, which recipe, which device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pairre.graph import Graph, load_graph
from pairre.graph.formats import endings_help
from pairre.graph.split import DEFAULT_FRACTIONS
from pairre.support.errors import PairREError

GraphArgument = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help=f"A file of triples ({endings_help()}), a folder "
        "with train/valid/test, or a name: `atlas` is bundled, `pairre graphs` lists the public benchmarks.",
    ),
]
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
Columns = Annotated[
    str | None,
    typer.Option(help="Columns of head, relation and tail, by name or by number from 1: `--columns from,type,to`."),
]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="Whether files start with a header.")]
Delimiter = Annotated[str | None, typer.Option(help="Delimiter of text files, if it is not found out rightly.")]
Shares = Annotated[str, typer.Option("--split", help="Shares of train/valid/test when GRAPH is one file.")]
SplitSeed = Annotated[int, typer.Option(help="Seed of that split.", min=0)]


def read_graph(
    graph: str, columns: str | None, header: bool | None, delimiter: str | None, split: str, seed: int
) -> Graph:
    """Return the graph that the options of a command describe."""
    picked, character, shares = _columns(columns), _delimiter(delimiter), _shares(split)
    with Console(stderr=True).status(f"reading {graph}"):
        return load_graph(graph, columns=picked, header=header, delimiter=character, split=shares, seed=seed)


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


def _shares(text: str) -> tuple[float, float, float]:
    if text == "90/5/5":
        return DEFAULT_FRACTIONS
    try:
        train_share, valid_share, test_share = (float(part) / 100 for part in text.split("/"))
    except ValueError:
        raise PairREError(f"--split {text}: three shares expected, e.g. 90/5/5") from None
    return train_share, valid_share, test_share
