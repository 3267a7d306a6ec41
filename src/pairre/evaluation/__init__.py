"""Ranks and what is made of them: filtered ranking, metrics, breakdowns by side, relation and category.

Decided here: the evaluation protocol and every metric.
"""
