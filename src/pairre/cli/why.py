"""The command `why`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pairre.cli import reason_tables as tables
from pairre.cli.console import echo_json, note_newer, open_run, out, progress_bar
from pairre.cli.options import Device, RunArgument, Verify


def command(
    run: RunArgument,
    head: Annotated[str, typer.Option(help="The head entity of the answer.")],
    relation: Annotated[str, typer.Option(help="The relation of the answer.")],
    tail: Annotated[str, typer.Option(help="The tail entity of the answer.")],
    side: Annotated[
        Literal["head", "tail"], typer.Option(help="Which of both was asked for: ranks are among its candidates.")
    ] = "tail",
    k: Annotated[int, typer.Option("-k", help="How many facts of each kind to name.", min=1)] = 5,
    rules: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rules as `pairre rules mine` writes them; else train's own are measured."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with every way in which a rule fires.")] = False,
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Say why the model gives an answer: rules that conclude it, facts that it depends on, facts of similar entities.

    A fact that the answer depends on is one without which it falls: the vector of the head or the tail is refit without
    it, and compared with a refit that has all facts.

    Examples:

        pairre why runs/atlas --head Toulouse --relation located_in --tail France

        pairre why runs/atlas --head Peru --relation borders --tail Chile --side head -k 10 --json

        pairre why runs/atlas --head Lima --relation capital_of --tail Peru --rules rules.tsv
    """
    from pairre.inference import explain

    opened = open_run(run, device, verify)
    with progress_bar("refitting", 1) as advance:
        found = explain(opened, head, relation, tail, side=side, k=k, rules=rules, progress=advance)
    note_newer(opened, [found])
    if as_json:
        echo_json(found.as_dict())
    else:
        out.print(*tables.explanation_tables(found), sep="\n")
