"""Answers over HTTP and as tools of agents, and the page on which people explore a run.

Decided here: what a request may cause to run (`answers.FUNCTIONS`), what it may cost, and how answers look as JSON.
"""
