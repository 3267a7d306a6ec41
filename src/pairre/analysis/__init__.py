"""Analysis of a trained run: relation patterns in its vectors, and a report as one page that opens offline.

When a pattern holds is decided here, and what the report shows.
"""

from pairre.analysis.patterns import Pattern, compare, paired_vectors, patterns_in_triples, search
from pairre.analysis.report import write_report

__all__ = ["Pattern", "compare", "paired_vectors", "patterns_in_triples", "search", "write_report"]
