"""Relation patterns: symmetries, inverses, subrelations and compositions, read off PairRE's vectors and off triples."""

from pairre.patterns.agreement import FORMULAS, KINDS, Kind, Pattern, Vectors, agreement, paired_vectors, products
from pairre.patterns.detect import Comparison, compare, patterns_in_triples
from pairre.patterns.search import Meets, search

__all__ = [
    "FORMULAS",
    "KINDS",
    "Comparison",
    "Kind",
    "Meets",
    "Pattern",
    "Vectors",
    "agreement",
    "compare",
    "paired_vectors",
    "patterns_in_triples",
    "products",
    "search",
]
