"""Options for what a graph is read from and what of it: SPARQL, labels, types, relations, blank nodes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from pairre.support.errors import PairREError
from pairre.support.text import shell_word

_PANEL = "What is read"


@dataclass(frozen=True)
class SourceOptions:
    """The values of the options, by the names that `load_graph` has for them."""

    weights: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Weights of triples, by title or number; by default the column `weight`. `none` leaves it out.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    labels: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Labels: a table of name and label. Repeatable.", rich_help_panel=_PANEL),
    ] = None
    types: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Types: a table of entity and type.", rich_help_panel=_PANEL),
    ] = None
    language: Annotated[
        str, typer.Option(help="Language of labels in RDF, where they have it.", rich_help_panel=_PANEL)
    ] = "en"
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="RELATION", help="Read no other relation. Repeatable.", rich_help_panel=_PANEL),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="RELATION", help="Leave a relation out. Repeatable.", rich_help_panel=_PANEL),
    ] = None
    keep_blank: Annotated[
        bool, typer.Option("--keep-blank", help="Keep blank nodes and lists of RDF.", rich_help_panel=_PANEL)
    ] = False
    sparql: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Ask an endpoint, or the folder of a store, instead of GRAPH.", rich_help_panel=_PANEL
        ),
    ] = None
    query: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The query: SELECT ?head ?relation ?tail, or CONSTRUCT.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `load_graph` for these options."""
        values = asdict(self)
        return {**values, **{name: values[name] or () for name in ("labels", "only", "exclude")}}

    def words(self) -> list[str]:
        """Return the options as words of a shell command; those with their default are left out."""
        words = []
        for option in fields(self):
            value = getattr(self, option.name)
            for one in value if isinstance(value, list) else [value] if value != option.default else []:
                flag = f"--{option.name.replace('_', '-')}"
                words.append(flag if one is True else f"{flag} {shell_word(one)}")
        return words


NO_OPTIONS = SourceOptions()


def with_source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command with the parameters `graph` and `source` the options of `SourceOptions`.

    `source` gets their values. GRAPH may be left out if --sparql is there, whose address `graph` is then, or --resume.
    """
    hints = get_type_hints(SourceOptions, include_extras=True)
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in own if p.name != "source"]
    parameters = [p.replace(default=None) if p.name == "graph" else p for p in parameters]
    for option in fields(SourceOptions):
        annotation = hints[option.name]
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(option.name, kind, default=option.default, annotation=annotation))

    @functools.wraps(command)
    def call(**values: Any) -> None:
        source = SourceOptions(**{option.name: values.pop(option.name) for option in fields(SourceOptions)})
        resumed = values.get("resume") and values["graph"] is None
        if (values["graph"] is None) == (source.sparql is None) and not resumed:
            raise PairREError("name one source: GRAPH, or an endpoint with --sparql URL --query FILE")
        if (source.query is None) != (source.sparql is None):
            raise PairREError("--sparql URL and --query FILE go together")
        values["graph"] = values["graph"] or source.sparql
        command(**values, source=source)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call
