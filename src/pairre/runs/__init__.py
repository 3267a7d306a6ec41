"""Trained runs: the run folder on disk, a run in memory, several runs merged into one.

Decided here: what is stored, in which format, and what a damaged or foreign folder gets as an answer.
"""
