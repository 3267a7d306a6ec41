"""Relation patterns: symmetries, inverses, subrelations and compositions, read off PairRE's vectors and off triples."""

from pairre.analysis.patterns.agreement import (
    FORMULAS,
    KINDS,
    Kind,
    Pattern,
    Vectors,
    agreement,
    paired_vectors,
    products,
)
from pairre.analysis.patterns.detect import Comparison, compare, patterns_in_triples
from pairre.analysis.patterns.search import Meets, search

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
