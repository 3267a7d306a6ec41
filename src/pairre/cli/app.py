"""The application: find the commands, load plug-ins, turn errors of the user into one line and exit code 2.

Every module of this folder that defines a function `command`, or a typer application `group`, is a command of its name.
A module is imported when its command is called, and the list of commands is read from the sources, so that
`pairre --help` does not wait for torch.
"""

from __future__ import annotations

import ast
import atexit
import gc
import io
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from pairre.cli.console import echo, err
from pairre.cli.examples import CommandWithExamples, GroupWithExamples
from pairre.support.errors import (
    ClosedPipeError,
    InterruptedCommandError,
    OutputError,
    PairREError,
    RecipeError,
    suggest,
)
from pairre.support.interrupts import interrupts_noted
from pairre.support.plugins import load_plugin
from pairre.support.processes import place, speaks_first
from pairre.support.reading import shortened
from pairre.support.terminal import standard_output
from pairre.support.text import visible
from pairre.support.version import __version__

_FIRST = ("stats", "train", "evaluate", "predict", "report", "tune")  # in the list of commands; others follow by name
_YOUNG_OBJECTS = 50_000  # between two looks for cyclic garbage
_MAX_MESSAGE = 2000  # characters; a name or a path in it may have any length
_LINE_BREAK = re.compile(r"\s*\n\s*")
# The base class of typer's errors about options; it is click's own or typer's copy of it, by the version of typer.
_CommandLineError: type[Exception] = typer.BadParameter.__mro__[2]


_exit_codes: list[int] = []  # of the command line that this process is, once it has ended


@atexit.register  # before all others, so that it runs after them, when no thread is left either
def _end_at_once() -> None:
    """Spare Python taking all modules apart before the process ends, which takes long with those of torch."""
    if _exit_codes:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # a pipe that nobody reads, a closed stream, none
                stream.flush()
        os._exit(_exit_codes[-1])


@cache
def summary(name: str) -> str | None:
    """Return the help text of a command, read from its source without importing it; None if there is none.

    It is the docstring of the function `command`, or that of a module with a `group`.
    """
    if not name.isidentifier() or not (file := Path(__file__).with_name(f"{name}.py")).is_file():
        return None
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "command":
            return ast.get_docstring(node) or ""
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "group":
            return ast.get_docstring(tree) or ""
    return None


def summaries() -> dict[str, str]:
    """Return the help text of every command by name, in the order of the list of commands."""
    others = sorted({file.stem for file in Path(__file__).parent.glob("*.py")} - set(_FIRST))
    return {name: text for name in (*_FIRST, *others) if (text := summary(name)) is not None}


def load_command(name: str) -> Any:
    """Return a command, or a group of commands, from its module."""
    module, alone = import_module(f"pairre.cli.{name}"), typer.Typer(rich_markup_mode="markdown", add_completion=False)
    if hasattr(module, "group"):
        return typer.main.get_group(module.group)
    alone.command(name, cls=CommandWithExamples)(module.command)
    return typer.main.get_command(alone)


class _Commands(GroupWithExamples):
    """The group of all commands; typer would end the process at an interrupt or a closed pipe without a word."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return list(summaries())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Return a command as the list of commands shows it."""
        text = summary(cmd_name)
        return None if text is None else typer.core.TyperCommand(cmd_name, help=text, rich_markup_mode="markdown")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the chosen command, the command, and its own arguments."""
        if not ctx.resilient_parsing and summary(args[0]) is None and not args[0].startswith("-"):
            raise PairREError(f"no command {args[0]!r}{suggest(args[0], summaries())}; pairre --help lists all")
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(str(name)), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptedCommandError("interrupted") from None
        except BrokenPipeError as error:
            raise ClosedPipeError from error


def build_app() -> typer.Typer:
    """Return the application, which finds its commands by itself."""
    app = typer.Typer(
        name="pairre",
        cls=_Commands,
        help="Knowledge-graph completion with PairRE: a graph in, ranked predictions out.\n\n"
        "`pairre COMMAND --help` says more about a command.\n\n"
        "Examples:\n\n"
        "    pairre train atlas --out runs/atlas\n\n"
        "    pairre predict runs/atlas --head France --relation borders\n\n"
        "    pairre discover runs/atlas --out links.parquet",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    app.callback()(_options)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"pairre {__version__}")
        raise typer.Exit


def _options(
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="Import a module or .py file first, which may define models, losses, metrics, formats and optimisers.",
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    for name in plugin or ():
        load_plugin(name)


class _Notes(logging.Handler):
    """Print warnings of the library, one line each, on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print_line(f"note: {record.getMessage()}", style="yellow")


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cyclic garbage rarely: while modules load there is none, and looking takes a seventh of that time."""
    before = gc.get_threshold()
    gc.set_threshold(max(_YOUNG_OBJECTS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    log = logging.getLogger("pairre")
    here = place()
    log.handlers, log.propagate = [_Notes() if here is None or here.rank == 0 else logging.NullHandler()], False
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # instead of a UnicodeEncodeError
    with _rare_collections():
        message, code = run(arguments)
    if message and speaks_first():
        err.quiet = False  # as it is where another process shows what is no error
        echo(f"pairre: {shortened(visible(_LINE_BREAK.sub(' ', message.strip())), _MAX_MESSAGE)}", err)
    with suppress(OutputError):  # what is left to write after an error
        standard_output.flush()
    if arguments is None:
        _exit_codes.append(code)
    raise SystemExit(code)


def run(arguments: list[str] | None) -> tuple[str, int]:
    """Run a command and return the line that says what went wrong, empty if nothing did, and the exit code."""
    try:
        words = sys.argv[1:] if arguments is None else arguments  # for commands that start themselves again
        with interrupts_noted():
            code = build_app()(arguments, prog_name="pairre", standalone_mode=False, obj=words)
        standard_output.flush()
        return "", code if isinstance(code, int) else 0
    except _CommandLineError as error:
        return _usage(error), getattr(error, "exit_code", 2)
    except KeyboardInterrupt:
        return "interrupted", InterruptedCommandError.exit_code
    except RecipeError as error:
        return f"{error} (pairre recipes lists every key)" if "unknown" in str(error) else str(error), 2
    except PairREError as error:
        return str(error), error.exit_code
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", 2
    except (MemoryError, RuntimeError) as error:
        from pairre.support.memory import describe_shortage, is_out_of_memory

        if not is_out_of_memory(error):
            raise
        return f"not enough memory: {describe_shortage(error)}", 2


def _usage(error: Any) -> str:
    """Return what is wrong with the options of a command; empty if its help was shown instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    context = getattr(error, "ctx", None)
    more = f" ({context.command_path} --help shows the options)" if context is not None else ""
    return f"{error.format_message().rstrip('.')}{more}"
