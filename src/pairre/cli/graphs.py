"""The command `graphs`."""

from __future__ import annotations

from pairre.cli import tables
from pairre.cli.console import out


def command() -> None:
    """List the graphs that go by a name, with their sizes and licences.

    Example:

        pairre graphs
    """
    from pairre.graph.benchmarks import BENCHMARKS

    out.print(tables.benchmarks_table(BENCHMARKS))
