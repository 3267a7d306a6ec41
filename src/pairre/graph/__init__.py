"""Files → ids: readers, vocabularies, splits, the index of known triples, public benchmarks and the bundled graph."""

from pairre.graph.graph import SPLITS, Graph, Split
from pairre.graph.index import KnownTriples, Side
from pairre.graph.load import load_graph
from pairre.graph.vocabulary import Vocabulary

__all__ = ["SPLITS", "Graph", "KnownTriples", "Side", "Split", "Vocabulary", "load_graph"]
