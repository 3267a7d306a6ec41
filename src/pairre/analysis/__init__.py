"""What a trained run has learnt: patterns of relations in its vectors, and a report that opens offline.

Decided here: when a pattern holds, and what the report shows.
"""
