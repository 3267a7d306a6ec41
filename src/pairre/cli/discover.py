"""The command `discover`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from pairre.cli.console import echo, note_newer, open_run, out, progress_bar
from pairre.cli.options import Device, Force, RunArgument, Verify
from pairre.support.errors import InterruptedCommandError

_SHOWN = 10
Pairs = Literal["plausible", "observed", "all"]


def command(
    run: RunArgument,
    file: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The file to write: .csv, .tsv, .json, .jsonl or .parquet.")
    ],
    k: Annotated[int, typer.Option("-k", help="How many triples.", min=1)] = 1000,
    relation: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only triples of this relation. Repeatable; else all.")
    ] = None,
    per_relation: Annotated[
        bool, typer.Option("--per-relation", help="As many triples of each relation, not of all together.")
    ] = False,
    min_probability: Annotated[
        float | None, typer.Option(metavar="P", help="Only triples that are at least so probable.")
    ] = None,
    pairs: Annotated[
        Pairs,
        typer.Option(
            help="The heads and tails of a relation to consider: plausible ones, of them observed heads only, or all."
        ),
    ] = "plausible",
    force: Force = False,
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Find the most plausible triples that the graph lacks, of all heads, relations and tails.

    For each relation, every head that makes sense for it is combined with every tail that does. Triples are ordered by
    probability, or by score where the graph has no validation split. If it is interrupted, repeat the same command: it
    goes on from FILE.state, which is deleted at the end.

    Examples:

        pairre discover runs/atlas --out links.parquet

        pairre discover runs/atlas --out links.csv -k 100 --relation borders --relation capital_of

        pairre discover runs/atlas --out links.jsonl --min-probability 0.5 --pairs all
    """
    from pairre.cli import tables
    from pairre.evaluation.calibration import calibration_of, describe_calibration
    from pairre.inference.discover import discover
    from pairre.inference.links import write_links
    from pairre.support.table_files import check_table_file

    check_table_file(file, force=force)
    opened, state = open_run(run, device, verify, together=True), file.with_name(file.name + ".state")
    if state.exists():
        echo(f"Going on from {state}.")
    with progress_bar("searching", 1) as advance, _said_how_to_go_on(state):
        links = discover(
            opened,
            k=k,
            relations=relation,
            per_relation=per_relation,
            min_probability=min_probability,
            pairs=pairs,
            state=state,
            progress=advance,
        )
    has_probability = any(link.base_rate is not None for link in links)
    if opened.writes:
        write_links(file, links, probability=has_probability, labels=opened.graph.has_labels)
        state.unlink(missing_ok=True)
    out.print(tables.links_table(links[:_SHOWN], opened.graph))
    if has_probability and (calibration := calibration_of(opened)):
        echo(describe_calibration(calibration))
    note_newer(opened, links)
    echo(f"{len(links):,} triples are in {file}.")


@contextmanager
def _said_how_to_go_on(state: Path) -> Iterator[None]:
    """Say at an interrupt that the same command continues, if there is a state that it goes on from."""
    try:
        yield
    except KeyboardInterrupt:
        advice = f"; {state} is saved: the same command goes on from there" if state.exists() else ""
        raise InterruptedCommandError(f"interrupted{advice}") from None
