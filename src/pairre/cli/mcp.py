"""The command `mcp`."""

from __future__ import annotations

from typing import Annotated

import typer

from pairre.cli.console import echo, err
from pairre.cli.options import Device, RunArgument, Verify
from pairre.support.errors import MissingExtraError


def command(
    run: RunArgument,
    http: Annotated[
        bool, typer.Option("--http", help="Serve over streamable HTTP instead of standard input and output.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="With --http, the address to listen on; any but this machine's needs a token.")
    ] = ("127.0.0.1"),
    port: Annotated[
        int, typer.Option(help="With --http, the port; 0 takes any that is free.", min=0, max=65535)
    ] = 8001,
    token: Annotated[
        str | None,
        typer.Option(help="What clients must send as `Authorization: Bearer TOKEN`; better set in `PAIRRE_TOKEN`."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Also answer to this host name, such as that of a proxy. Repeatable."),
    ] = None,
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Serve a run to language-model agents as tools (MCP): search, facts, predict, why and similar.

    Programs that use tools start it by themselves; give them the command and its arguments. No tool changes anything.

    Examples:

        pairre mcp runs/atlas

        pairre mcp runs/atlas --http --port 8001
    """
    try:
        from pairre.serve.mcp.server import HttpOptions, serve_http, serve_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pairre"):
            raise
        raise MissingExtraError("pairre mcp", "mcp") from error

    def say(text: str) -> None:
        echo(text, err)  # standard output is for the client

    if http:
        options = HttpOptions(host, port, token, tuple(allow_host or ()))
        serve_http(run, options, device, verify, say, lambda address: say(f"Tools are at {address}; Ctrl-C stops."))
    else:
        serve_stdio(run, device, verify, say)
