"""Relation patterns: symmetries, inverse pairs, subrelations and compositions, in PairRE's vectors and in triples."""

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
from pairre.analysis.patterns.search import MIN_AGREEMENT, MIN_OVERLAP, MOST_SEARCHED, Overlaps, search, search_frequent

__all__ = [
    "FORMULAS",
    "KINDS",
    "MIN_AGREEMENT",
    "MIN_OVERLAP",
    "MOST_SEARCHED",
    "Comparison",
    "Kind",
    "Overlaps",
    "Pattern",
    "Vectors",
    "agreement",
    "compare",
    "paired_vectors",
    "patterns_in_triples",
    "products",
    "search",
    "search_frequent",
]
