"""The command `plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pairre.cli.console import echo, echo_json, err, out
from pairre.cli.options import RecipeSource, Settings
from pairre.cli.tables import new_table
from pairre.support.memory import readable_bytes

if TYPE_CHECKING:
    from pairre.support.terminal import Table
    from pairre.training.plan import Plan


def command(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH",
            help="A graph as `train` takes it, or sizes: ENTITIES/RELATIONS/TRIPLES, as in 91M/1387/600M.",
        ),
    ],
    recipe: RecipeSource = None,
    settings: Settings = None,
    num_processes: Annotated[
        int, typer.Option("--nproc", min=1, metavar="N", help="Processes that would divide the rows of entities.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what training would need: memory by part, where it fits, and how long it would take.

    Nothing is allocated. Times are of PairRE only; each says whether it was measured or is computed from what was.

    Examples:

        pairre plan atlas

        pairre plan 91M/1387/600M --set train.optimizer=adagrad --nproc 2
    """
    from pairre.training.plan import make_plan

    with err.status(f"planning {graph}"):
        plan = make_plan(graph, recipe, overrides=settings or (), num_processes=num_processes)
    if as_json:
        echo_json(plan.as_dict())
        return
    entities, relations, triples = (f"{size:,}" for size in plan.sizes)
    echo(f"{entities} entities, {relations} relations, {triples} triples in train")
    out.print(*_tables(plan), sep="\n")
    for found in plan.durations:
        near, how = found.source, "measured" if found.measured else "computed from the nearest measured"
        with_settings = f"{near.dim} features, batch {near.batch}, {near.negatives} negatives, {near.optimizer}"
        echo(f"{found.device}: {how}: {near.step_ms:g} ms with {with_settings} (docs/results/{near.file})")
    if not plan.durations:
        echo("No step of this model with such negatives was measured, so that no time is given.")
    if plan.num_processes > 1:
        together = readable_bytes(plan.num_processes * plan.needed)
        echo(f"Memory is that of each process, {together} of all together. Their time was not measured.")


def _tables(plan: Plan) -> list[Table]:
    parts = new_table("memory", ["part"], ["size"])
    for part in plan.parts:
        where = " (on the host beside a GPU)" if part.on_host else ""
        parts.add_row(part.name + where, readable_bytes(part.num_bytes))
    parts.add_row("in all", readable_bytes(plan.needed))
    places = new_table("where it fits", ["memory", "fits", "why not"], ["size"])
    for place in plan.places:
        places.add_row(place.name, "no" if place.missing else "yes", place.why, readable_bytes(place.num_bytes))
    times = new_table("how long", ["device", "figure"], ["ms a step", "hours an epoch", "hours in all"])
    for found in plan.durations:
        hours = f"{found.epoch_hours:.3g}", f"{found.run_hours:.3g}"
        times.add_row(found.device, "measured" if found.measured else "computed", f"{found.step_ms:.3g}", *hours)
    return [parts, places, times] if plan.durations else [parts, places]
