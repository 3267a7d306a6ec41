"""The commands `rules …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pairre.cli import tables
from pairre.cli.console import out, progress_bar, say
from pairre.cli.options import Columns, Delimiter, GraphArgument, Header, Shares, SplitSeed, read_graph
from pairre.rules import KINDS, mine, write_rules
from pairre.support.errors import PairREError

group = typer.Typer(
    help="Rules between relations, such as: who is the mother of someone is a parent of theirs.", no_args_is_help=True
)


@group.callback()
def callback() -> None:
    """Keep `mine` a subcommand, even while it is the only one."""


@group.command("mine")
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

    Examples:

        pairre rules mine atlas --out rules.tsv

        pairre rules mine atlas --out rules.tsv --kind inverse --kind symmetry --min-confidence 0.9
    """
    if file.exists() and not force:
        raise PairREError(f"{file}: there already; write to another file, or overwrite it with --force")
    if not file.parent.is_dir():
        raise PairREError(f"{file}: there is no folder {file.parent}; make it first")
    loaded = read_graph(graph, columns, header, delimiter, split, split_seed)
    with progress_bar("mining", 1) as advance:
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
    say(f"The rules are in {file}.")
