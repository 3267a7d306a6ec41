"""Rules between relations, such as: who is the mother of someone is a parent of theirs.

Examples:

    pairre rules mine atlas --out rules.tsv

    pairre rules apply atlas rules.tsv --out implied.csv

    pairre rules evaluate runs/atlas rules.tsv
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pairre.cli import tables
from pairre.cli.console import echo, echo_json, open_run, out, progress_bar
from pairre.cli.examples import CommandWithExamples, GroupWithExamples
from pairre.cli.options import (
    Columns,
    Delimiter,
    Device,
    Force,
    GraphArgument,
    Header,
    RunArgument,
    Shares,
    SplitSeed,
    Unverified,
    Verify,
    read_graph,
)
from pairre.cli.source_options import NO_OPTIONS, SourceOptions, with_source_options
from pairre.support.files import check_new_file

RulesArgument = Annotated[Path, typer.Argument(metavar="RULES", help="A file of rules made by `pairre rules mine`.")]
Combined = Annotated[
    Literal["max", "noisy-or"],
    typer.Option(help="Confidence of what several rules imply: the largest, or 1 − Π (1 − confidence)."),
]
_SHOWN = 10
group = typer.Typer(cls=GroupWithExamples, help=__doc__, no_args_is_help=True, rich_markup_mode="markdown")


@group.callback()
def callback() -> None:
    """Make a group of the commands below."""


@group.command("mine", cls=CommandWithExamples)
@with_source_options
def mine_command(
    graph: GraphArgument,
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file of rules to write, also .gz or .zst.")],
    kind: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="Only rules of this kind. Repeatable; else all.")
    ] = None,
    min_support: Annotated[
        int, typer.Option(min=1, help="Support: pairs of entities for which body and head both hold.")
    ] = 10,
    min_head_coverage: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Head coverage: the fraction of the facts of the concluded relation that a rule implies."
        ),
    ] = 0.01,
    min_confidence: Annotated[
        float, typer.Option(min=0, max=1, help="Confidence: of the pairs where the body holds, how many are support.")
    ] = 0.8,
    min_pca_confidence: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="PCA confidence: the same, only of entities with some fact of the head relation."
        ),
    ] = 0.0,
    top: Annotated[int, typer.Option(min=0, help="How many of the strongest rules to show.")] = 10,
    force: Force = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    split: Shares = "90/5/5",
    split_seed: SplitSeed = 0,
    unverified: Unverified = False,
    source: SourceOptions = NO_OPTIONS,
) -> None:
    """Find the rules that the train split of a graph follows, count exactly how well, and write them as TSV.

    Kinds: subrelation r(x, y) ⇒ s(x, y); inverse r(x, y) ⇒ s(y, x); symmetry r(x, y) ⇒ r(y, x); equivalence
    r(x, y) ⇔ s(x, y); composition r(x, y) ∧ s(y, z) ⇒ t(x, z). A rule must reach all thresholds.

    Examples:

        pairre rules mine atlas --out rules.tsv

        pairre rules mine atlas --out rules.tsv --kind inverse --kind symmetry --min-confidence 0.9
    """
    from pairre.rules import KINDS, mine, write_rules

    check_new_file(file, force=force)
    loaded = read_graph(graph, columns, header, delimiter, split, split_seed, unverified, source)
    with progress_bar("mining", 1) as advance:
        found = mine(
            loaded,
            kind or KINDS,
            min_support=min_support,
            min_head_coverage=min_head_coverage,
            min_confidence=min_confidence,
            min_pca_confidence=min_pca_confidence,
            progress=advance,
        )
    write_rules(file, found)
    names = loaded.relations.name_list(range(loaded.num_relations))
    shown = {name: loaded.show_relation(i) for i, name in enumerate(names)}
    out.print(*tables.rules_tables(found, top, shown), sep="\n")
    echo(f"The rules are in {file}.")


@group.command("apply", cls=CommandWithExamples)
@with_source_options
def apply_command(
    graph: GraphArgument,
    rules: RulesArgument,
    file: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The file to write: .csv, .tsv, .json, .jsonl or .parquet.")
    ],
    k: Annotated[int, typer.Option("-k", help="How many facts.", min=1)] = 1000,
    min_confidence: Annotated[
        float, typer.Option(min=0, max=1, help="Only facts that are at least so confident.")
    ] = 0.0,
    combine: Combined = "max",
    force: Force = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    split: Shares = "90/5/5",
    split_seed: SplitSeed = 0,
    unverified: Unverified = False,
    source: SourceOptions = NO_OPTIONS,
) -> None:
    """Find the facts that rules imply and the graph lacks, the most confident first, with the rules that imply them.

    Rules are applied to the facts of all splits. GRAPH may be the folder of a run.

    Examples:

        pairre rules apply atlas rules.tsv --out implied.csv

        pairre rules apply runs/atlas rules.tsv --out implied.parquet -k 100000 --min-confidence 0.9
    """
    from pairre.rules import apply_rules, read_rules
    from pairre.rules.apply import write_implied
    from pairre.support.table_files import check_table_file

    check_table_file(file, force=force)
    known = read_rules(rules)
    loaded = read_graph(graph, columns, header, delimiter, split, split_seed, unverified, source)
    with progress_bar("applying", 1) as advance:
        found = apply_rules(loaded, known, k=k, min_confidence=min_confidence, combine=combine, progress=advance)
    write_implied(file, found)
    out.print(tables.implied_table(found[:_SHOWN], loaded))
    echo(f"{len(found):,} facts are in {file}.")


@group.command("evaluate", cls=CommandWithExamples)
def evaluate_command(
    run: RunArgument,
    rules: RulesArgument,
    split: Annotated[Literal["train", "valid", "test"], typer.Option(help="Which triples are ranked.")] = "test",
    combine: Combined = "max",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the metrics as JSON; - prints.")
    ] = None,
    force: Force = False,
    device: Device = "auto",
    verify: Verify = True,
) -> None:
    """Evaluate a run with rules beside it: a candidate scores more the more confident the rules are that imply it.

    How much rules count is chosen on the validation split for each relation. They are applied to the facts of train.

    Examples:

        pairre rules evaluate runs/atlas rules.tsv

        pairre rules evaluate runs/atlas rules.tsv --combine noisy-or --json metrics.json
    """
    from pairre.evaluation.rule_evidence import evaluate_with_rules
    from pairre.rules import read_rules
    from pairre.support.files import write_json

    to_stdout = json_file == Path("-")
    if json_file is not None and not to_stdout:
        check_new_file(json_file, force=force)
    known, opened = read_rules(rules), open_run(run, device, verify)
    passes = 2 * (len(opened.graph.valid) + 2 * len(opened.graph.split(split)))
    with progress_bar("ranking", passes * opened.graph.num_entities) as advance:
        result = evaluate_with_rules(opened, known, split, combine, advance)
    if to_stdout:
        echo_json(result)
        return
    if json_file is not None:
        write_json(json_file, result)
    out.print(tables.mixture_table(result))
