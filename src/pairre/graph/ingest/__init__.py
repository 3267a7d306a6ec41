"""Ingest: from files of triples that need not fit into memory to a graph on disk, within a limit of memory.

Decided here: what DuckDB reads and how, how ids are given, which triples are held out, and how all of it is written.
"""
