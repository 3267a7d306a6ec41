"""The command `ensemble`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pairre.cli import tables
from pairre.cli.console import echo, open_run, out, progress_bar
from pairre.cli.options import Device, Verify
from pairre.support.text import shell_word


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders of any models on one graph.")],
    folder: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder to make.")],
    rules: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rules as one more member, as `pairre rules mine` writes them."),
    ] = None,
    combine: Annotated[
        Literal["max", "noisy-or"],
        typer.Option(help="The confidence of what several rules conclude: the largest, or as of independent evidence."),
    ] = "max",
    entity_rules: Annotated[
        bool,
        typer.Option("--entity-rules", help="Rules that name entities as one more member; they are found in train."),
    ] = False,
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Make one run of several: their scores are added up, with weights that are chosen on the validation split.

    Different models make different mistakes, so that together they are better than each. The result holds its members
    and is a run like any other: evaluate it, query it, search with it. Runs of PairRE alone become one run of PairRE.

    Examples:

        pairre ensemble runs/pairre runs/complex --out runs/both

        pairre train atlas --teacher runs/both --set sampling.negatives=0 --out runs/student

        pairre ensemble runs/pairre runs/complex --rules rules.tsv --entity-rules --out runs/all
    """
    from pairre.evaluation import calibration_of, ensemble
    from pairre.runs import RunFolder

    RunFolder.check_free(folder)
    opened = [open_run(run, device, verify) for run in runs]
    with progress_bar("choosing weights", 1) as advance:
        made = ensemble(opened, rules=rules, combine=combine, entity_rules=entity_rules, progress=advance)
    with progress_bar("fitting probabilities", 2 * len(made.graph.valid) * made.graph.num_entities) as advance:
        calibration_of(made, advance)  # stored with the run
    made.save(folder)
    out.print(tables.ensemble_table(made.graph.name, made.origin))
    echo(f"The run is in {folder}. Next:")
    echo(f"  pairre evaluate {shell_word(folder)}")
