"""The application: find the commands, load plug-ins, turn errors of the user into one line and exit code 2.

Every module of this folder that defines a function `command`, or a typer application `group`, is a command of its name.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any

import typer

import pairre.cli
from pairre import __version__
from pairre.cli.console import err, say
from pairre.support.errors import PairREError, RecipeError
from pairre.training import TrainingInterruptedError

_FIRST = ("stats", "train", "evaluate", "predict", "report", "tune")  # in the list of commands; others follow by name


def build_app() -> typer.Typer:
    """Return the application with every command that is found."""
    app = typer.Typer(
        name="pairre",
        help="Knowledge-graph completion with PairRE: a graph in, ranked predictions out.\n\n"
        "Start with:  pairre train atlas --out runs/atlas",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    found = {module.name for module in iter_modules(pairre.cli.__path__)}
    for name in (*_FIRST, *sorted(found - set(_FIRST) - {"app"})):
        module = import_module(f"pairre.cli.{name}")
        if hasattr(module, "command"):
            app.command(name)(module.command)
        elif hasattr(module, "group"):
            app.add_typer(module.group, name=name)
    app.callback()(_options)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pairre {__version__}")
        raise typer.Exit


def _options(
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="Import a module or .py file first, which may define models and losses. Repeatable.",
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    for name in plugin or ():
        load_plugin(name)


def load_plugin(name: str) -> None:
    """Import a plug-in: a module by its name, or a file by its path.

    A model or a loss that it defines registers itself. Nothing else ever imports code that a user did not name.
    """
    path = Path(name)
    if path.suffix != ".py":
        if "" not in sys.path:
            sys.path.insert(0, "")  # a module of the folder that the command runs in, as python -m finds it
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise PairREError(
                f"--plugin {name}: no module named '{error.name}'; give its name or a .py file"
            ) from error
        return
    if not path.is_file():
        raise PairREError(f"--plugin {name}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)


class _Notes(logging.Handler):
    """Print warnings of the library, one line each, on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print(f"note: {record.getMessage()}", highlight=False, markup=False, soft_wrap=True, style="yellow")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    log = logging.getLogger("pairre")
    log.handlers, log.propagate = [_Notes()], False
    try:
        build_app()(arguments, prog_name="pairre")
    except TrainingInterruptedError as stop:
        _fail(str(stop), stop.exit_code)
    except RecipeError as error:
        _fail(f"{error} (pairre recipes lists every key)" if "unknown" in str(error) else str(error), 2)
    except PairREError as error:
        _fail(str(error), 2)
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None


def _fail(message: str, code: Any) -> None:
    say(f"pairre: {' '.join(message.split())}", err)
    raise SystemExit(code)
