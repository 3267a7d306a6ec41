"""Graphs: how files, folders and names of benchmarks become vocabularies, splits of id triples and an index of them.

Everything that depends on where triples come from is decided here: file formats, the split of a single file, public
benchmarks and the bundled graph `atlas`. The other folders see a `Graph` only.
"""

from typing import TYPE_CHECKING

from pairre.support.lazy import lazy_attributes

if TYPE_CHECKING:
    from pairre.graph.formats import Layout, TripleColumns, TripleFile, read_triples, register
    from pairre.graph.graph import SPLITS, Graph, Split
    from pairre.graph.index import KnownTriples, Side
    from pairre.graph.load import load_graph
    from pairre.graph.statistics import GraphStatistics, graph_statistics
    from pairre.graph.vocabulary import Vocabulary

__all__ = [
    "SPLITS",
    "Graph",
    "GraphStatistics",
    "KnownTriples",
    "Layout",
    "Side",
    "Split",
    "TripleColumns",
    "TripleFile",
    "Vocabulary",
    "graph_statistics",
    "load_graph",
    "read_triples",
    "register",
]

__getattr__ = lazy_attributes(__name__)
