"""Graphs that stay on disk: a folder of arrays that are mapped into memory, so that a graph may be larger than memory.

Decided here: which files such a folder has, how a name is found in it, and what is checked when it is opened.
"""
