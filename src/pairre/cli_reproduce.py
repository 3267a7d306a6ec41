"""The command `reproduce`: options, one table an experiment, kept as Markdown and JSON."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pairre import tables
from pairre.cli_options import Device
from pairre.errors import PairREError
from pairre.files import write_json, write_text
from pairre.reproduce import EXPERIMENTS, find, markdown, reproduce
from pairre.runs import versions


def reproduce_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="Tables and figures, see `--list`; else all of them.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where runs and tables are kept, and found again.")
    ] = Path("runs/reproduce"),
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of each row; else as many as the table says.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change every recipe, e.g. `--set train.steps=1000` for a quick look."
        ),
    ] = None,
    device: Device = "auto",
    show: Annotated[bool, typer.Option("--list", help="List what there is and what it needs, and stop.")] = False,
) -> None:
    """Reproduce tables and figures of the PairRE paper: ours beside the published one, with the difference.

    What is missing is trained, what was cut off goes on, what is there is used again. Each table is also written as
    NAME.md and NAME.json.
    """
    out, err = Console(), Console(stderr=True)
    if show:
        out.print(tables.experiments_table(EXPERIMENTS))
        return
    wanted = [find(name) for name in names or [experiment.name for experiment in EXPERIMENTS]]
    failed: list[str] = []
    for experiment in wanted:
        try:
            result = reproduce(
                experiment.name,
                folder,
                seeds=seeds,
                settings=tuple(settings or ()),
                device=device,
                say=lambda text: err.print(text, highlight=False, markup=False, soft_wrap=True),
            )
        except PairREError as error:
            if len(wanted) == 1:
                raise
            err.print(f"{experiment.name} is left out: {error}", highlight=False, markup=False, soft_wrap=True)
            failed.append(experiment.name)
            continue
        values = result.as_dict()
        out.print(tables.reproduction_table(values))
        stamp = {"date": datetime.date.today().isoformat(), "versions": versions(), "settings": settings or []}
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{experiment.name}.json", {**stamp, **values})
        write_text(folder / f"{experiment.name}.md", markdown(values))
        for file in result.files:
            err.print(f"wrote {file}", highlight=False, markup=False, soft_wrap=True)
    err.print(f"The tables are in {folder}.", highlight=False, markup=False, soft_wrap=True)
    if failed:
        raise PairREError(f"left out: {', '.join(failed)}; the reasons are above")
