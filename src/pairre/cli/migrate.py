"""The command `migrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pairre.cli.console import echo, err
from pairre.cli.options import RunArgument


def command(
    run: RunArgument,
    folder: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder to make.")],
) -> None:
    """Copy a run folder of an older format to a new one of today's; the original stays as it is.

    Runs of older formats can be evaluated and queried as they are. Only resuming one needs a copy.

    Example:

        pairre migrate runs/old --out runs/new
    """
    from pairre.runs import migrate

    with err.status("copying"):
        made = migrate(run, folder)
    echo(f"The run is in {made}.")
