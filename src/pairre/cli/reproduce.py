"""The command `reproduce`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pairre.cli import tables
from pairre.cli.console import echo, echo_json, err, out
from pairre.cli.options import Device, Force
from pairre.support.errors import PairREError
from pairre.support.files import check_new_file, disk_error, write_json, write_text


def command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="Tables and figures, see `--list`; else all of them.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where runs and tables are kept, and found again.")
    ] = Path("runs/reproduce"),
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Seeds of each row; else as many as the table says.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change every recipe, e.g. `--set train.steps=1000` for a quick look."
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all tables in one JSON file, too; - prints it.")
    ] = None,
    force: Force = False,
    device: Device = "auto",
    show: Annotated[bool, typer.Option("--list", help="List what there is and what it needs, and stop.")] = False,
) -> None:
    """Reproduce tables and figures of the PairRE paper: ours beside the published one, with the difference.

    What is missing is trained, what was cut off goes on, what is there is used again. Each table is also written as
    NAME.md and NAME.json; `--json` writes all of them in one file. Machine, versions and date are in both.

    Examples:

        pairre reproduce --list

        pairre reproduce sports

        pairre reproduce fb15k-237 --seeds 1 --set train.steps=2000
    """
    from pairre.studies.reproduce import EXPERIMENTS, find, machine, reproduce

    if show:
        out.print(tables.experiments_table(EXPERIMENTS))
        return
    wanted = [find(name) for name in names or [experiment.name for experiment in EXPERIMENTS]]
    stamp = {"machine": machine(device), "settings": settings or []}
    kept: dict[str, Any] = {**stamp, "tables": []}
    to_stdout, failed = json_file == Path("-"), []
    if json_file is not None and not to_stdout:
        check_new_file(json_file, force=force)
    _make(folder)
    for experiment in wanted:
        try:
            result = reproduce(
                experiment.name,
                folder,
                seeds=seeds,
                settings=tuple(settings or ()),
                device=device,
                notify=partial(echo, console=err),
            )
        except PairREError as error:
            if len(wanted) == 1:
                raise
            echo(f"{experiment.name} is left out: {error}", err)
            failed.append(experiment.name)
            continue
        values = result.as_dict()
        kept["tables"].append(values)
        _write(folder, stamp, values)
        if not to_stdout:
            out.print(tables.reproduction_table(values))
            if json_file is not None:
                write_json(json_file, kept)  # after every table, so that what is done is kept
        for file in result.files:
            echo(f"wrote {file}", err)
    if to_stdout:
        echo_json(kept)
    echo(f"The tables are in {folder}.", err)
    if failed:
        raise PairREError(f"left out: {', '.join(failed)}; the reasons are above")


def _make(folder: Path) -> None:
    """Make the folder of the tables if there is none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error) from error


def _write(folder: Path, stamp: dict[str, Any], values: dict[str, Any]) -> None:
    """Write one table as NAME.json and NAME.md."""
    from pairre.studies.reproduce import markdown

    write_json(folder / f"{values['name']}.json", {**stamp, **values})
    write_text(folder / f"{values['name']}.md", markdown(values))
