"""The command `extend`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pairre.cli.console import echo, open_run, progress_bar
from pairre.cli.options import Columns, Delimiter, Device, Header, RunArgument, Verify, read_layout
from pairre.support.text import shell_word

Move = Literal["new", "named"]


def command(
    run: RunArgument,
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A file of new triples, by name, as `train` reads one.")],
    folder: Annotated[Path, typer.Option("--out", metavar="RUN2", help="The run folder to make.")],
    move: Annotated[
        Move, typer.Option(help="Whose vectors move: those of `new` entities, or of all that NEW has (`named`).")
    ] = "new",
    epochs: Annotated[int, typer.Option(min=0, help="How often each fact is learnt; 0 is the start alone.")] = 10,
    rate: Annotated[float, typer.Option(min=0, help="How far a step moves a feature, in its usual size.")] = 0.005,
    labels: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Labels: a table of name and label. Repeatable.")
    ] = None,
    types: Annotated[Path | None, typer.Option(metavar="FILE", help="Types: a table of entity and type.")] = None,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Add new triples and new entities to a run within seconds, without training again.

    A new entity starts at what its facts ask for; then a few steps follow, in which nothing else moves. Old triples
    keep their scores to the bit. RUN stays as it is. New relations are refused: `pairre train --init-from` learns them.

    Examples:

        pairre extend runs/atlas new-cities.tsv --out runs/atlas-2

        pairre extend runs/mine new.csv --columns from,type,to --move named --out runs/mine-2
    """
    from pairre.runs import RunFolder
    from pairre.training import extend

    RunFolder.check_free(folder)
    layout = read_layout(columns, header, delimiter)
    base = open_run(run, device, verify)
    with progress_bar("learning", 1.0) as advance:
        extended = extend(
            base,
            new,
            epochs=epochs,
            rate=rate,
            move=move,
            labels=labels or (),
            types=types,
            progress=advance,
            **layout,
        )
    extended.save(folder)
    origin, graph = extended.origin, extended.graph
    known = f"; {origin['known_triples']:,} were there already" if origin["known_triples"] else ""
    echo(f"{origin['new_triples']:,} new triples, {origin['new_entities']:,} new entities{known}.")
    echo(f"The run is in {folder}. Next:")
    head, relation = graph.show_entity(int(graph.train[-1, 0])), graph.show_relation(int(graph.train[-1, 1]))
    echo(f"  pairre predict {shell_word(folder)} --head {shell_word(head)} --relation {shell_word(relation)}")
