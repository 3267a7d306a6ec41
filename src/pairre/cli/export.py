"""The command `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pairre.cli.console import echo, open_run, progress_bar
from pairre.cli.options import Device, Force, RunArgument, Verify
from pairre.support.files import check_new_file


def command(
    run: RunArgument,
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write; its ending is the format.")],
    table: Annotated[Literal["entities", "relations"], typer.Option(help="Whose vectors.")] = "entities",
    format: Annotated[
        Literal["parquet", "npz", "npy", "word2vec", "projector"] | None,
        typer.Option(help="The format, if the ending does not say it."),
    ] = None,
    force: Force = False,
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    r"""Write the vectors of all entities or relations for other programs, with their names.

    - `.parquet`: columns name and vector
    - `.npz`: arrays names and vectors
    - `.npy`: the array, which can be mapped into memory, and FILE.names.txt, a name per line
    - `.txt`, `.vec`: the text format of word2vec, for gensim; white space in names becomes `_`
    - `.tsv`: vectors for TensorBoard's projector, and FILE.metadata.tsv with the names

    Examples:

        pairre export runs/atlas --out countries.parquet

        pairre export runs/atlas --out vectors.tsv

        pairre export runs/atlas --out relations.npz --table relations
    """
    from pairre.inference.export import export, files_of

    check_new_file(file, force=force)
    for path in files_of(file, format):
        check_new_file(path, force=force)
    opened = open_run(run, device, verify, together=True)
    with progress_bar("writing", len(getattr(opened.graph, table))) as advance:
        written = export(opened, file, table=table, format=format, progress=advance)
    echo(f"The vectors are in {' and '.join(map(str, written))}.")
