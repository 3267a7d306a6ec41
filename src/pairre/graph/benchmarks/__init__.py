"""Public benchmarks: which graphs there are, where a copy is looked for, and what a download must match to be kept.

`table.py` is the list of graphs; a new one is an entry there. `locate` returns a folder of splits. The graphs of the
Open Graph Benchmark have a loader of their own, `ogb.py`.
"""

from pairre.graph.benchmarks.entry import Benchmark, Source, Splits
from pairre.graph.benchmarks.lookup import find, locate, names
from pairre.graph.benchmarks.table import BENCHMARKS

__all__ = ["BENCHMARKS", "Benchmark", "Source", "Splits", "find", "locate", "names"]
