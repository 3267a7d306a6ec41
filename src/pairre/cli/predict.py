"""The command `predict`."""

from __future__ import annotations

import csv
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import typer

from pairre.cli import tables
from pairre.cli.console import echo, echo_json, err, note_newer, open_run, out, progress_bar
from pairre.cli.options import (
    Columns,
    Delimiter,
    Device,
    Force,
    Header,
    RunArgument,
    SkipUnknown,
    Verify,
    triple_layout,
)
from pairre.cli.reason_tables import explanation_tables
from pairre.support.errors import PairREError
from pairre.support.terminal import standard_output

if TYPE_CHECKING:
    from pairre.graph import Layout
    from pairre.graph.lookup import FoundTriples
    from pairre.inference import Explanation, Predictions
    from pairre.runs import Run

Format = Literal["table", "json", "csv"]


class Query(TypedDict):
    """The names that were typed; the one that is open is None."""

    head: str | None
    relation: str | None
    tail: str | None


def command(
    run: RunArgument,
    head: Annotated[str | None, typer.Option(help="Name of the head entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="Name of the relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Name of the tail entity.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many answers.", min=1)] = 10,
    known: Annotated[bool, typer.Option("--known/--no-known", help="Keep triples the graph has, marked.")] = False,
    any: Annotated[bool, typer.Option("--any", help="Keep answers that make no sense for the relation, too.")] = False,
    candidates: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Only these entities may answer: one name a line, or a column.")
    ] = None,
    candidates_column: Annotated[str | None, typer.Option(metavar="TITLE", help="The column of --candidates.")] = None,
    type: Annotated[str | None, typer.Option(help="Only entities of this type may answer.")] = None,
    coverage: Annotated[
        float | None, typer.Option(metavar="P", help="As many answers as it takes for a true one with probability P.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answer every row of a file of triples; each leaves one member empty."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write them: .csv, .tsv, .json, .jsonl or .parquet."),
    ] = None,
    force: Force = False,
    why: Annotated[bool, typer.Option("--why", help="Say why the best answer is given, as `pairre why` does.")] = False,
    skip_unknown: SkipUnknown = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    format: Annotated[Format, typer.Option(help="How to print them.")] = "table",
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Name the most plausible tails of a head and relation, heads of a relation and tail, or relations of a pair.

    Answers that make no sense are left out: the query's own entity, and entities unlike all that the relation takes on
    that side in train. --any keeps them.

    Examples:

        pairre predict runs/atlas --head France --relation borders

        pairre predict runs/atlas --relation capital_of --tail Peru --known --why

        pairre predict runs/atlas --head Toulouse --tail France -k 3 --format json

        pairre predict runs/atlas --head France --relation borders --coverage 0.9

        pairre predict runs/atlas --file queries.tsv --out answers.parquet
    """
    from pairre.graph.lookup import read_names
    from pairre.support.table_files import check_table_file

    if file is not None and (output is None or (head, relation, tail) != (None, None, None)):
        raise PairREError("--file FILE has queries of its own; write its answers with --out, without --head and others")
    if why and (output is not None or format == "csv"):
        raise PairREError("--why goes with a table or with --format json; pairre why explains any answer")
    if coverage is not None and (known or output or candidates or type):
        raise PairREError("--coverage decides which answers there are: leave out the other options that do")
    if output is not None:
        check_table_file(output, force=force)
    query: Query = {"head": head, "relation": relation, "tail": tail}
    choice: dict[str, Any] = {"k": k, "known": known, "any": any, "type": type}
    choice["candidates"] = None if candidates is None else read_names(candidates, candidates_column)
    layout = triple_layout(columns, header, delimiter) if output is not None else None
    opened = open_run(run, device, verify, together=True)
    if coverage is not None:
        _show_covered(opened, query, coverage, any, format, why)
    elif output is None:
        _show_best(opened, query, choice, format, why)
    else:
        _write(opened, _find(opened, query, file, layout, skip_unknown), output, choice)


def _show_covered(run: Run, query: Query, coverage: float, any: bool, format: Format, why: bool) -> None:
    """Print as many answers to a query as a coverage takes."""
    from pairre.inference import answer_set

    found = answer_set(run, **query, coverage=coverage, any=any)
    _show(run, found.answers, 0, format, _explain_best(run, found.answers, query["head"] is None) if why else None)
    echo(str(found), err)


def _show_best(run: Run, query: Query, choice: dict[str, Any], format: Format, why: bool) -> None:
    """Print the best answers to a query."""
    from pairre.inference import predict

    answers = predict(run, **query, **choice)
    _show(run, answers, choice["k"], format, _explain_best(run, answers, query["head"] is None) if why else None)


def _find(run: Run, query: Query, file: Path | None, layout: Layout | None, skip_unknown: bool) -> FoundTriples:
    """Return the queries of a file by id, or the one that was typed."""
    from pairre.inference.predict import find_queries, find_query

    if file is None:
        return find_query(run.graph, **query)
    return find_queries(run.graph, file, layout, skip_unknown=skip_unknown)


def _write(run: Run, queries: FoundTriples, output: Path, choice: dict[str, Any]) -> None:
    """Write the answers to queries to a file, and say how many there are."""
    from pairre.inference.answers import Choice
    from pairre.inference.predict import write_predictions

    chosen = Choice.of(run.graph, **choice)
    with progress_bar("answering", len(queries.triples)) as advance:
        num_answers = write_predictions(run, queries, output, chosen, advance)
    note_newer(run)
    skipped = f"; rows skipped for unknown names: {queries.num_unknown:,}" if queries.num_unknown else ""
    echo(f"{num_answers:,} answers to {len(queries.triples):,} queries are in {output}{skipped}.")


def _explain_best(run: Run, answers: Predictions, head_is_asked: bool) -> Explanation | None:
    """Return why the best answer is given, or None if there is none."""
    from pairre.inference import explain

    if not answers:
        return None
    best = answers[0]
    side: Literal["head", "tail"] = "head" if head_is_asked else "tail"
    with progress_bar("refitting", 1) as advance:
        return explain(run, best.head, best.relation, best.tail, side=side, progress=advance)


def _show(run: Run, answers: Predictions, k: int, format: Format, why: Explanation | None) -> None:
    """Print the answers to one query, and why the best is given."""
    from pairre.inference import Prediction

    rows = [{key: value for key, value in asdict(answer).items() if _is_shown(run, key)} for answer in answers]
    note_newer(run, answers)
    if format == "json":
        if why:
            rows[0]["why"] = why.as_dict()
        echo_json(rows)
        return
    if format == "csv":
        titles = [field.name for field in fields(Prediction) if _is_shown(run, field.name)]
        writer = csv.DictWriter(standard_output, titles, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return
    out.print(tables.predictions_table(answers, run.graph))
    if why:
        out.print("", *explanation_tables(why), sep="\n")
    if len(answers) < k:
        echo(f"Only {len(answers)} of the {k} answers: there are no more candidates.", err)
    if answers.num_implausible:
        echo(f"Implausible candidates left out: {answers.num_implausible:,}; --any keeps them.", err)


def _is_shown(run: Run, key: str) -> bool:
    return run.graph.has_labels or not key.endswith("_label")
