"""Embedding tables with their optimiser: gather rows by id, update them, flush what was deferred, checkpoint state.

Decided here: where rows live and how they are updated. Nothing outside this folder assumes that a table is local.
"""
