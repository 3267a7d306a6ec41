"""The command `serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pairre.cli.console import echo, err
from pairre.cli.options import Device, Verify
from pairre.support.errors import MissingExtraError, PairREError


def command(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN…", help="Run folders, each by the name of its folder or as NAME=FOLDER.")
    ],
    host: Annotated[str, typer.Option(help="The address to listen on; any but this machine's needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="The port; 0 takes any that is free.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="What clients must send as `Authorization: Bearer TOKEN`; better set in `PAIRRE_TOKEN`."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Pages of this other site may read answers (CORS). Repeatable."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Also answer to this host name, such as that of a proxy. Repeatable."),
    ] = None,
    workers: Annotated[
        int, typer.Option(help="Processes that compute answers; 0 for one less than cores, at most 8.", min=0, max=256)
    ] = 0,
    rate: Annotated[float, typer.Option(help="Requests a second of one client; 0 for no limit.", min=0)] = 100.0,
    max_concurrent: Annotated[int, typer.Option(help="Requests that are worked on at the same time.", min=1)] = 64,
    reviews: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where verdicts on links are kept; beside each run without it."),
    ] = None,
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Serve runs: a page to explore them at /, and an API for programs at /api/v1.

    Only this machine is answered unless --host says otherwise, which needs a token. Ctrl-C stops the server.

    Examples:

        pairre serve runs/atlas

        pairre serve runs/atlas movies=runs/2026-11-19 --port 8080

        PAIRRE_TOKEN=… pairre serve runs/atlas --host 0.0.0.0 --allow-origin https://example.org
    """
    try:
        from pairre.serve.http.limits import Limits
        from pairre.serve.http.start import Options, start
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pairre"):
            raise
        raise MissingExtraError("pairre serve", "serve") from error
    if reviews is not None and not reviews.is_dir():
        raise PairREError(f"--reviews {reviews}: no such folder; make it first")
    limits = Limits(rate=rate, burst=2 * rate, max_concurrent=max_concurrent)
    options = Options(
        runs, host, port, token, allow_origin or (), allow_host or (), workers, device, verify, reviews, limits
    )
    start(options, lambda text: echo(text, err), lambda address: echo(f"Open {address} in a browser; Ctrl-C stops it."))
